"""A phone that looks at the news: each look is answered by the cloud, or by the phone itself (Mobius 6)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from mudkit.checks import Range, check_arguments
from mudkit.errors import ParameterError
from mudkit.lab import Lab
from mudkit.sources.workloads import Poisson
from mudkit.systems.mud import Client, Cloud, ReadPolicy
from mudkit.words import Label, add_labels

if TYPE_CHECKING:
    import pandas as pd

add_labels(
    {
        "j_per_look": Label("radio energy", "J per look"),
        "article_minutes": Label("time from one article to the next", "min"),
    }
)

_APP: Final = "news"
_MINUTES_PER_DAY: Final = 1440.0
_LOOK, _ARTICLE = "look", "article"


@check_arguments(types=False)
@dataclass(frozen=True)
class NewsReader:
    """Plan of the looks of one phone, and of the articles that are written meanwhile.

    Parameters
    ----------
    look_minutes, article_minutes : float
        Mean time between two looks, and between two articles; both are Poisson processes.
    hours : float
        Virtual time.
    link : str
        Link of the phone, as in :meth:`mudkit.lab.Lab.device`.

    Examples
    --------
    >>> from mudkit.systems.mud import AlwaysRemote
    >>> NewsReader(hours=1.0).run(AlwaysRemote(), seed=1)["sent_share"]
    1.0
    """

    look_minutes: Annotated[float, Range(0.1, 1440.0)] = 5.0
    article_minutes: Annotated[float, Range(0.1, 1440.0)] = 30.0
    hours: Annotated[float, Range(0.01, 10_000.0)] = 12.0
    link: str = "umts_3g"

    def run(self, policy: ReadPolicy, seed: int = 0) -> dict[str, float]:
        """Run the plan with a read ``policy`` on the phone; same ``seed``: same looks and articles.

        The result has the number of ``looks``; the shares of them sent to the cloud (``sent_share``), and
        answered without an article that was committed before (``stale_share``); the phone's ``messages,
        bytes, wakeups, radio_j``, and the energy of its radio for each look (``j_per_look``).
        """
        lab = Lab(seed, record_messages=False)
        cloud, token = Cloud(lab), lab.token(app=_APP)
        service = Client(lab.device("service"), cloud, app=_APP, token=token)
        device = lab.device("phone", link=self.link)
        phone = Client(device, cloud, app=_APP, token=token, read_policy=policy)
        service.create(_APP).result()
        written = looks = sent = stale = 0
        for t_us, what in self._moments(seed):
            lab.run(seconds=max(0, t_us - lab.world.now_us) / 1e6)
            if what == _ARTICLE:
                service.write(_APP, None, {"article": "…"}).result()
                written += 1
            else:
                result = phone.read(_APP).result()
                looks += 1
                sent += "remote" in result.source.values()
                stale += len(result) < written
        bill = lab.bill().query("device == 'phone'")  # no row if nobody has looked
        radio_j = float(bill["radio_mj"].sum()) / 1000
        return {
            "looks": float(looks),
            "sent_share": sent / looks if looks else math.nan,
            "stale_share": stale / looks if looks else math.nan,
            "messages": float(bill["messages"].sum()),
            "bytes": float(bill["bytes"].sum()),
            "wakeups": float(bill["wakeups"].sum()),
            "radio_j": radio_j,
            "j_per_look": radio_j / looks if looks else math.nan,
        }

    def compare(self, policies: Mapping[str, ReadPolicy], seed: int = 0) -> pd.DataFrame:
        """Run the plan with each of ``policies``: a row of ``policy`` and the measures of :meth:`run`.

        Without a policy, it raises a ParameterError.
        """
        import pandas as pd

        if not policies:
            raise ParameterError("There is no policy to run.", where="policies", expected="at least one")
        return pd.DataFrame([{"policy": name, **self.run(policy, seed)} for name, policy in policies.items()])

    def _moments(self, seed: int) -> list[tuple[int, str]]:
        """Return the times of looks and articles, in µs; the first article is written at once."""
        moments = [(0, _ARTICLE)]
        for what, minutes in ((_LOOK, self.look_minutes), (_ARTICLE, self.article_minutes)):
            workload = Poisson(per_day=_MINUTES_PER_DAY / minutes)
            drawn = workload.moments(seed, what, [what], 0, round(self.hours * 3.6e9))
            moments += [(t_us, what) for t_us in drawn.t_us.tolist()]
        return sorted(moments)
