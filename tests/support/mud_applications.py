"""Applications of Mobius 3.2 as programs that run under faults: social news, a fair, a journal."""

from __future__ import annotations

from mudkit.errors import OperationLost
from mudkit.predicates import Predicate
from mudkit.systems.mud import Client, Conflict, freshness

MAX_AGE_S = 600.0
NEAR_KM = 1.6
ADULT_YEARS = 21

PEOPLE = {
    "jane": {"age": ADULT_YEARS + 9, "loc": (30.27, -97.74)},
    "ann": {"age": ADULT_YEARS - 4, "loc": (round(30.27 + NEAR_KM / 222, 4), -97.74)},  # half as far
    "bob": {"age": ADULT_YEARS, "loc": (round(30.27 + NEAR_KM / 55, 4), -97.74)},  # twice as far
}
ARTICLES = {"a1": ("arts", "22:00"), "s1": ("sports", "12:00"), "s2": ("sports", "22:00")}  # good until
PROGRAMME = {
    "kiosk": {"lat": 30.26, "lon": -97.75},
    "Kernels": {"since": "12:00", "until": "15:00"},
    "Forks": {"since": "15:00", "until": "22:00"},
}
NEAR = Predicate("within_km(receiver.loc, sender.loc, :km)", km=NEAR_KM)
ADULTS = Predicate("receiver.age >= :years", years=ADULT_YEARS)


def open_app(lab, cloud, app, tables):
    """Create the tables of an app with its service; return the service and a client on each phone."""
    devices = {name: lab.device(name, at=PEOPLE.get(name, {}).get("loc")) for name in ("service", *PEOPLE)}
    clients = {
        name: Client(device, cloud, app=app, token=lab.token(name, app)) for name, device in devices.items()
    }
    for table in tables:
        clients["service"].create(table).result()
    return clients.pop("service"), clients


def read_continuously(phone, name, table, where=None):
    """Start a continuous read of a phone; return the growing list of keys of committed changes."""
    keys = []

    def note_key(change):
        if not change.is_pending:
            keys.append(change.key)

    phone.read(table, where, "continuous", PEOPLE[name], callback=note_key).result()
    return keys


def social_news(lab, cloud):
    """Run social news: a read, continuous reads, and messages to friends; return what each phone received."""
    service, phones = open_app(lab, cloud, "news", ("news", "chat"))
    jane, arts = phones["jane"], read_continuously(phones["jane"], "jane", "news", "topic = 'arts'")
    chats = {
        name: read_continuously(phone, name, "chat", "group = 'friends'") for name, phone in phones.items()
    }
    for key, (topic, until) in ARTICLES.items():
        service.write("news", key, {"topic": topic, "until": until}).result()
    lab.run(minutes=1)
    sports = Predicate("topic = 'sports' AND until > :now", now=f"{lab.now:%H:%M}")
    looks = [jane.read("news", sports, utility=freshness(MAX_AGE_S)).result() for _ in range(2)]
    jane.write("chat", "m1", {"group": "friends", "msg": "a1"}).result()
    jane.write("chat", "m2", {"group": "friends", "msg": "event"}, predicate=NEAR).result()
    first, second = (look.source for look in looks)
    return {"told of arts": {"jane": arts}, "sports": first, "sports again": second, "messages": chats}


def experience_sharing(lab, cloud):
    """Run a day at a fair; return the changes on each phone, and the sources of Ann's two reads offline."""
    stand, phones = open_app(lab, cloud, "fair", ("programme", "flashnews", "comments"))
    for key, row in PROGRAMME.items():
        stand.write("programme", key, row).result()
    ann, beer = (
        phones["ann"],
        {name: read_continuously(phone, name, "flashnews") for name, phone in phones.items()},
    )
    comments = {name: read_continuously(phone, name, "comments") for name, phone in phones.items()}
    stand.write("flashnews", "beer", {"text": "free beer at south kiosk"}, predicate=ADULTS).result()
    ann.read("programme", "lat > 30 AND lat < 31", utility=freshness(86_400)).result()
    lab.faults.cut("ann", minutes=10)
    offline = ann.read("programme", "lat > 30 AND lat < 31", utility=freshness(86_400)).result()
    current = Predicate("since <= :now AND until > :now", now=f"{lab.now:%H:%M}")
    ann.write("comments", "c1", {"text": "what a sound"}, predicate=NEAR).result()
    band = ann.read("programme", current).result()
    return {"free beer": beer, "map, no network": offline.source, "comments": comments, "band": band.source}


def reconcile(tablet, edit, merge):
    """Wait for an edit; after a conflict merge and write again. Return the merged pages."""
    pending = tablet.pending().result()
    try:
        edit.result()
        return []
    except Conflict as conflict:
        versions = conflict.store, conflict.local, conflict.base
    except OperationLost:  # the app was killed and gets no answer; its stored write was sent
        now = tablet.read("journal", "key = 'monday'", "committed_wio").result()
        versions = {"data": now.records["monday"]}, pending[-1], pending[-1]["base"]
    pages = [set(version["data"]["entries"]) for version in versions]
    merged = {"entries": sorted(merge(*pages))}
    tablet.write("journal", "monday", merged, "conditional", "auth.user = 'jane'").result()
    return pages


def journal(lab, tablet, phone, merge, kind="conditional", meanwhile=lambda: None):
    """Edit a page on two devices, one of them offline; return the page, and the merged pages."""
    page, tablet_page, phone_page = (
        {"entries": ["breakfast", *more]} for more in ([], ["cafe A"], ["way home"])
    )
    arguments = kind, "auth.user = 'jane'"
    tablet.create("journal", acl="user").result()
    tablet.write("journal", "monday", page, *arguments).result()
    phone.read("journal", latest=True).result()
    lab.faults.cut("jane-tablet")
    edit = tablet.write("journal", "monday", tablet_page, *arguments)
    lab.run(seconds=2)
    phone.write("journal", "monday", phone_page, *arguments).result()
    meanwhile()
    lab.faults.mend("jane-tablet")
    merged = reconcile(tablet, edit, merge)
    return phone.read("journal", latest=True).result().records["monday"]["entries"], merged
