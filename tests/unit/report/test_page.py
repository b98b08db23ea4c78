"""The first screen of a report."""

from mudkit.report.page import SUMMARY, Answer, FirstScreen, Measure


def test_first_screen_escapes_names_and_returns_its_summary():
    screen = FirstScreen(
        "<b>cabs</b>.csv",
        [("1", "<i>")],
        "Keep <it>.",
        "Since `x` holds.",
        "If <y>.",
        ["<z> leads"],
        [Measure("sent_share", 0.5, "share", "Reads that ask the server.", 0.4, float("nan"))],
    )
    html = screen._repr_html_()
    for text in ("<b>cabs", "<i>", "<it>", "<y>", "<z>"):
        assert text not in html
    assert "<code>x</code>" in html
    assert screen._repr_mimebundle_()[SUMMARY] == {
        "headline": "Keep <it>.",
        "measures": [
            {
                "name": "sent_share",
                "value": 0.5,
                "unit": "share",
                "definition": "Reads that ask the server.",
                "low": 0.4,
                "high": None,
            }
        ],
    }
    assert "<u>" not in Answer("<u>", "<u>")._repr_html_()


def test_numbers_and_units_are_not_separated_by_line_breaks():
    html = Answer("0.5 % within 10 min", "1 km and 3 more, 2 points")._repr_html_()
    for text in (
        "0.5\N{NO-BREAK SPACE}%",
        "10\N{NO-BREAK SPACE}min",
        "1\N{NO-BREAK SPACE}km",
        "2\N{NO-BREAK SPACE}points",
    ):
        assert text in html
    assert "3 more" in html
