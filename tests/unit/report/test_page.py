"""The first screen of a report."""

from mudkit.report.page import HEADLINE, Answer, FirstScreen


def test_first_screen_escapes_names_and_returns_its_headline():
    screen = FirstScreen(
        "<b>cabs</b>.csv", [("1", "<i>")], "Keep <it>.", "Since `x` holds.", "If <y>.", ["<z> leads"]
    )
    html = screen._repr_html_()
    for text in ("<b>cabs", "<i>", "<it>", "<y>", "<z>"):
        assert text not in html
    assert "<code>x</code>" in html
    assert screen._repr_mimebundle_()[HEADLINE] == "Keep <it>."
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
