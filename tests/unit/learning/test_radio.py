"""Radio costs of queries and messages: as a lab charges them."""

import numpy as np
import pytest

from mudkit.fleet.bill import Account
from mudkit.fleet.energy import RADIOS, Radio
from mudkit.lab import Lab
from mudkit.learning import RadioModel
from mudkit.systems.mud import AlwaysRemote, Client, Cloud
from mudkit.systems.mud.policies.policies import Later

MINUTE_US = 60_000_000


def make_car(link, **policies):
    lab = Lab(3)
    device = lab.device("car-0001", link=link)
    token = lab.token("car-0001", "traffic")
    policies |= {"read_policy": AlwaysRemote()}
    client = Client(device, Cloud(lab), app="traffic", token=token, **policies)
    client.create("traffic", acl="app").result()
    lab.run(minutes=5)  # until the tail of its radio ends
    return lab, client


def sum_charges(lab):
    bill = lab.bill()
    return bill[bill["device"] == "car-0001"][["messages", "bytes", "radio_mj"]].sum()


def write_report(lab, client):
    now_s = lab.world.now_us // 1_000_000
    record = {"lat": 42.361071326118, "lon": -71.089928108224, "at_s": lab.world.now_us / 1e6}
    return client.write("traffic", f"car-0001 {now_s}", record)


PREDICATE = "lat BETWEEN 42.27114302218 AND 42.451030183645 AND lon BETWEEN -71.211698124482 AND -70.968158091967 AND at_s > {:.3f}"


@pytest.mark.parametrize("link", ["lte", "umts_3g"])
def test_queries_cost_what_a_lab_charges(link):
    """Send queries during the radio's tail and while it sleeps."""
    lab, client = make_car(link)
    for _ in range(40):
        write_report(lab, client)
        lab.run(seconds=10)
    lab.run(minutes=5)
    before, t_us, points = sum_charges(lab), [], []
    for gap_s in (3, 5, 8, 11, 20, 60, 2, 300):
        t_us.append(lab.world.now_us)
        predicate = PREDICATE.format(lab.world.now_us / 1e6 - 7200)
        location = {"loc": (42.361071326118, -71.089928108224)}
        answer = client.read("traffic", predicate, data=location).result()
        points.append(len(answer.records))
        lab.run(seconds=gap_s)
    assert set(points) == {40}
    charged = sum_charges(lab) - before
    model = RadioModel(link)
    costs = model.queries(np.zeros(8, np.int64), np.array(t_us), np.array(points))
    assert charged["messages"] == 8 * model.query_messages
    assert costs.bytes.sum() == pytest.approx(charged["bytes"], rel=0.05)
    assert costs.radio_mj.sum() == pytest.approx(charged["radio_mj"], rel=0.03)


def test_messages_cost_what_a_lab_charges():
    """Batch one, three or thirty writes for half an hour each."""
    lab, client = make_car("lte", write_policy=Later(1800))
    before, sent = sum_charges(lab), []
    for count in (1, 3, 30, 1):
        for _ in range(count):
            write_report(lab, client)
            lab.run(seconds=10)
        lab.run(minutes=40)
        sent.append(count)
    charged = sum_charges(lab) - before
    model = RadioModel()
    apart_us = np.arange(4) * 60 * MINUTE_US
    costs = model.messages(np.zeros(4, np.int64), apart_us, np.array(sent))
    assert charged["messages"] == 4 + sum(sent)  # each write is acknowledged
    assert costs.bytes.sum() == pytest.approx(charged["bytes"], rel=0.05)
    assert costs.radio_mj.sum() == pytest.approx(charged["radio_mj"], rel=0.03)


def test_devices_have_separate_radios():
    model, two = RadioModel(), np.array([5, 5])
    alone = model.queries(np.array([0]), np.array([0]), np.array([5])).radio_mj.sum()
    apart = model.queries(np.array([0, 1]), np.array([0, 2_000_000]), two).radio_mj.sum()
    together = model.queries(np.array([0, 0]), np.array([0, 2_000_000]), two).radio_mj.sum()
    later = model.queries(np.array([0, 0]), np.array([0, MINUTE_US]), two).radio_mj.sum()
    assert apart == later == pytest.approx(2 * alone)
    assert alone < together < 0.7 * apart


def test_only_the_ideal_link_costs_no_energy():
    empty = np.zeros(0, np.int64)
    assert RadioModel().queries(empty, empty, empty).radio_mj.sum() == 0
    ideal = RadioModel("ideal").queries(np.array([0]), np.array([0]), np.array([9]))
    assert ideal.radio_mj.tolist() == [0.0]
    assert ideal.bytes[0] > 9 * 100


def test_exchanges_cost_what_a_fleet_radio_charges():
    """Charge the same transfers with the fleet's account: the energy is equal."""
    model, radio, account = RadioModel("lte"), Radio(RADIOS["lte"]), Account("mud", "car", "up")
    times_us = [0, 4_000_000, 30_000_000]
    up_us, wait_us, down_us = 8_000.0 * 1000 / 5640, 70_000, 8_000.0 * 5000 / 12740
    for t_us in times_us:
        ready_us = max(radio.open(t_us, account), t_us)
        for size, start_us, duration_us, mj_per_kb in (
            (1000, ready_us, up_us, RADIOS["lte"].up_mj_per_kb),
            (5000, ready_us + up_us + wait_us, down_us, RADIOS["lte"].down_mj_per_kb),
        ):
            if start_us > ready_us:
                radio.open(round(start_us), account)
            account.radio_mj += size / 1000 * mj_per_kb + duration_us * radio.active_mj_per_us
            radio.active_until_us, radio.last = round(start_us + duration_us), account
    radio.open(10**12, account)
    costs = model.exchanges(np.zeros(3, np.int64), np.array(times_us), np.full(3, 1000.0), np.full(3, 5000.0))
    promotion = RADIOS["lte"].promotion_us * RADIOS["lte"].promotion_mw * 1e-6  # for the last opening
    assert costs.radio_mj.sum() == pytest.approx(account.radio_mj - promotion, rel=0.02)
