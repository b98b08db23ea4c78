"""Public names: what the packages export, and what notebooks may rely on."""

import importlib
import pkgutil

import pytest

import mudkit

PACKAGES = ["mudkit"] + [
    each.name for each in pkgutil.walk_packages(mudkit.__path__, "mudkit.") if each.ispkg
]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_public_name_equals_a_submodule_of_its_package(package):
    """Otherwise ``import mudkit.trace.load as module`` yields a function."""
    module = importlib.import_module(package)
    submodules = {each.name for each in pkgutil.iter_modules(module.__path__)}
    functions_and_classes = {
        name
        for name in {*getattr(module, "__all__", ()), *vars(module)}
        if callable(getattr(module, name, None))
    }
    assert sorted(submodules & functions_and_classes) == []
