"""Picture of the five systems: drawn by the tool, and small."""

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]


def test_picture_matches_the_tool_and_names_all_systems():
    spec = importlib.util.spec_from_file_location("picture", ROOT / "tools" / "picture.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    kept = (ROOT / "docs" / "systems.svg").read_text(encoding="utf-8")
    assert kept == tool.picture(), "python tools/picture.py draws it again"
    assert len(kept.encode()) < 100_000
    words = [element.text for element in ElementTree.fromstring(kept).iter() if element.tag.endswith("text")]
    systems = ["MUD", "Last hop", "Contrail", "Radiator", "SUBLIM"]
    assert [word for word in words if word in systems] == systems
    assert "(systems.svg)" in (ROOT / "docs" / "how.md").read_text(encoding="utf-8")
