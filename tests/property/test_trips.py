import numpy as np
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st

from mudkit.errors import ParameterError
from mudkit.sources.city import CommuterTown, residents
from mudkit.sources.phones import PhoneUse, check_plausible, fixes, queries
from mudkit.sources.trips import day_start_s, trips
from mudkit.trace.plausible import judge

towns = st.builds(
    CommuterTown,
    lat=st.floats(-60, 60),
    lon=st.floats(-180, 180),
    utc_offset_h=st.sampled_from([-12.0, -6.0, 0.0, 5.75, 14.0]),
    edge_km=st.floats(2, 45),
    home_spread_km=st.floats(0.5, 45),
    errand_spread_km=st.floats(0.5, 45),
    block_km=st.floats(0.05, 0.5),
    blocks_per_arterial=st.integers(2, 100),
    arterials_per_expressway=st.integers(2, 20),
    detour_share=st.floats(0, 2),
    street_mps=st.floats(2, 30),
    expressway_mps=st.floats(2, 40),
    expressway_slowdown=st.floats(0, 0.8),
    speed_spread=st.floats(0, 0.3),
    turn_wait_s=st.floats(0, 120),
    commuter_share=st.sampled_from([0.0, 0.5, 1.0]),
    leave_home_h=st.floats(4.5, 12),
    leave_home_spread_h=st.floats(0, 4),
    work_h=st.floats(0.5, 14),
    work_spread_h=st.floats(0, 4),
    workday_outing_share=st.floats(0, 1),
    workday_outing_h=st.floats(4.5, 22.5),
    outing_hours=st.tuples(*[st.floats(4.5, 22.5)] * 3),
    outing_spread_h=st.floats(0, 4),
    second_stop_share=st.floats(0, 1),
    errand_stay_h=st.floats(0.05, 6),
    errand_stay_spread=st.floats(0, 1.5),
)
phones = st.builds(
    PhoneUse,
    interval_s=st.integers(10, 3600),
    gps_error_m=st.floats(0, 20),
    query_share_low=st.just(1.0),
    look_again_share=st.floats(0, 0.95),
    look_later_s=st.floats(1, 7200),
)


@examples(60)
@given(towns, phones, st.integers(), st.integers(3652, 43_000))
def test_trips_and_fixes_are_consistent_for_any_parameters(town, phone, seed, day):
    try:
        check_plausible(town, phone)
    except ParameterError:
        assume(False)
    people = residents(town, seed, np.arange(20))
    days = [trips(town, seed, people, day + i) for i in range(2)]
    for i, day_trips in enumerate(days):
        arrival_s = day_trips.start_s + day_trips.duration_s
        assert np.all(day_trips.start_s >= day_start_s(town, day + i) + 1800)
        assert np.all(arrival_s <= day_start_s(town, day + i + 1) - 900)
        order = np.lexsort((day_trips.start_s, day_trips.car))
        same = np.diff(day_trips.car[order]) == 0
        stay_s = day_trips.start_s[order][1:] - arrival_s[order][:-1]
        assert np.all(stay_s[same] >= town.shortest_stay_s)
        assert np.array_equal(day_trips.east_km[order][1:, 0][same], day_trips.east_km[order][:-1, -1][same])
        assert np.array_equal(
            day_trips.north_km[order][1:, 0][same], day_trips.north_km[order][:-1, -1][same]
        )
    for observe in (fixes, queries):
        sightings = [observe(day_trips, phone, seed) for day_trips in days]
        car, t_s, lat, lon = (
            np.concatenate([getattr(s, name) for s in sightings]) for name in ("car", "t_s", "lat", "lon")
        )
        assert np.all((np.abs(lat) <= 90) & (lon >= -180) & (lon <= 180))
        order = np.lexsort((t_s, car))
        assert np.all(np.diff(t_s[order])[np.diff(car[order]) == 0] > 0)
        if observe is fixes:
            assert not judge(car[order], t_s[order] * 1_000_000, lat[order], lon[order]).verdict.any()
