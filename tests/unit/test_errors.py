import pickle

import pytest

import mudkit.errors as errors


@pytest.mark.parametrize("name", [n for n in errors.__all__ if n != "MudkitError"])
def test_every_kind_is_a_builtin_too_and_survives_pickling(name):
    kind = getattr(errors, name)
    assert len([base for base in kind.__mro__ if base.__module__ == "builtins"]) > 3
    error = kind("It failed.", found="a", expected="b", remedy="c", where="d")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert (again.found, again.expected, again.remedy, again.where) == ("a", "b", "c", "d")


def test_message_names_what_came_and_what_to_do():
    text = str(errors.ParameterError("Bad.", found="7", expected="a name", remedy="say one", where="key"))
    assert text.splitlines() == [
        "Bad.",
        "  where:    key",
        "  found:    7",
        "  expected: a name",
        "  to do:    say one",
    ]
