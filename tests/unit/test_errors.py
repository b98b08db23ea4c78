import pickle

import pytest

import mudkit.errors as errors

KINDS = [
    name
    for name in errors.__all__
    if name not in ("FailureWarning", "OutageEndedWarning", "MudkitError", "brief", "did_you_mean", "listed")
]


@pytest.mark.parametrize("name", KINDS)
def test_every_error_is_a_builtin_kind_and_survives_pickling(name):
    kind = getattr(errors, name)
    assert len([base for base in kind.__mro__ if base.__module__ == "builtins"]) > 3
    error = kind("It failed.", found="a", expected="b", remedy="c", where="d")
    unpickled = pickle.loads(pickle.dumps(error))
    assert type(unpickled) is kind
    assert str(unpickled) == str(error)
    assert (unpickled.found, unpickled.expected, unpickled.remedy, unpickled.where) == ("a", "b", "c", "d")


def test_failure_warning_survives_pickling():
    first = KeyError("a")
    first.add_note("in mail on ann at 1.000000 s")
    warning = errors.FailureWarning([first, ValueError("b")], 1_200)
    unpickled = pickle.loads(pickle.dumps(warning))
    assert str(unpickled) == str(warning)
    assert "KeyError: 'a'\n    in mail on ann at 1.000000 s and 1,199 more" in str(warning)
    assert ([type(error) for error in unpickled.errors], unpickled.count) == ([KeyError, ValueError], 1_200)


@pytest.mark.parametrize("at", [(0, 2), (20, 60), (40, 60), (100, 120), (198, 199)])
def test_carets_are_below_the_place_of_a_long_text(at):
    """Use a text in which each character differs from its neighbours, so that a place is found again."""
    text = "".join(chr(ord("a") + number % 26) for number in range(200))
    error = errors.PredicateError("It is wrong.", text=text, at=at)
    _, shown, below = str(error).splitlines()
    begin, end = below.index("^"), below.rindex("^") + 1
    assert shown[begin:end] == text[at[0] : at[1] + 1]
    assert set(below[begin:end]) == {"^"}
    assert len(shown) <= 12 + 70 + len("……")


def test_message_lists_place_value_expectation_and_remedy():
    text = str(errors.ParameterError("Bad.", found="7", expected="a name", remedy="say one", where="key"))
    assert text.splitlines() == [
        "Bad.",
        "  where:    key",
        "  found:    7",
        "  expected: a name",
        "  to do:    say one",
    ]


def test_did_you_mean_suggests_the_nearest_names():
    assert errors.did_you_mean("Cels", ["cells", "label_reads"]) == "did you mean 'cells'?"
    assert errors.did_you_mean("MM1", ["M1", "L1"]) == "did you mean 'M1'?"
    assert errors.did_you_mean("name", ["a", "names", "nname"]) == "did you mean 'nname' or 'names'?"
    assert errors.did_you_mean("xyz", ["cells"]) is None
    assert errors.did_you_mean("xyz", ["cells"], "leave it out") == "leave it out"
    assert errors.did_you_mean("abcdefg", ["abc", "x"]) == "did you mean 'abc'?"
    assert errors.did_you_mean("abc" * 100_000, ["abc"]) is None
    assert errors.did_you_mean("xyz", []) is None


def test_long_lists_are_truncated_and_empty_ones_named():
    names = [str(number) for number in range(21)]
    assert errors.listed(names[:20]) == ", ".join(names[:20])
    assert errors.listed(names) == ", ".join(names[:20]) + ", …"
    assert errors.listed([], "none yet") == "none yet"
