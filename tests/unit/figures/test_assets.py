import importlib.util
import json
import re
import stat
import sys

import pytest

from mudkit.errors import EnvironmentProblem
from mudkit.figures import assets


@pytest.fixture
def tool(repository):
    spec = importlib.util.spec_from_file_location("fetch_assets", repository / "tools" / "fetch_assets.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tool, tmp_path, monkeypatch):
    """Return the asset folder of a small checkout with two files and a fake npm."""
    folder = tmp_path / "mudkit" / "figures" / "assets"
    folder.mkdir(parents=True)
    (folder / "package.json").write_text(
        json.dumps({"vendor": {"a.js": "a/dist/a.js", "a.LICENSE": "a/LICENSE"}})
    )
    (folder / "package-lock.json").write_text("{}")
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "ASSETS", (folder,))
    use_npm(tool, monkeypatch, tmp_path)
    return folder


def use_npm(tool, monkeypatch, tmp_path, *, status=0, files=("dist/a.js", "LICENSE"), version="11.0"):
    """Replace npm by a program with this behaviour that logs each call to npm.log."""
    npm = tmp_path / "npm"
    npm.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, sys\n"
        f"open({str(tmp_path / 'npm.log')!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
        f"if '--version' in sys.argv: print({version!r}); sys.exit(0 if {version!r} else 1)\n"
        f"if {status}: sys.stderr.write('npm error code EINTEGRITY\\nnpm error A complete log of this run\\n'); "
        f"sys.exit({status})\n"
        f"for name in {files!r}:\n"
        "    path = pathlib.Path('node_modules/a', name)\n"
        "    path.parent.mkdir(parents=True, exist_ok=True)\n"
        "    path.write_text('new ' + name)\n"
    )
    npm.chmod(npm.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(tool, "find_npm", lambda: [[str(npm)]])


def read_contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir() if path.name != "stamp.json"}


def test_no_map_files_are_missing_after_setup():
    assert assets.missing_map_files() == []


@pytest.mark.parametrize("number", [0, 1])
def test_lock_file_has_hashes_and_no_addresses(tool, number):
    folder = tool.ASSETS[number]
    packages = json.loads((folder / "package-lock.json").read_text())["packages"]
    required = json.loads((folder / "package.json").read_text())["dependencies"]
    locked = {name.removeprefix("node_modules/"): entry for name, entry in packages.items() if name}
    assert {name: entry["version"] for name, entry in locked.items()} == required
    assert all(entry["integrity"].startswith("sha512-") for entry in locked.values())
    assert not any("resolved" in entry for entry in packages.values())


def test_scripts_can_be_embedded_in_a_page():
    for text in (assets.leaflet_js(), assets.heat_js(), assets.map_js(), assets.marker_js()):
        assert "</script" not in text
        assert "sourceMappingURL" not in text
    assert "1.9.4" in assets.leaflet_js()
    assert "heatLayer" in assets.heat_js()


def test_style_sheets_load_no_files():
    addresses = re.findall(r"url\(([^)]{0,30})", assets.leaflet_css() + assets.map_css())
    assert len(addresses) >= 3
    assert all(address.startswith(("data:image/png;base64,", "#")) for address in addresses)
    assert "@import" not in assets.leaflet_css() + assets.map_css()


def test_missing_files_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(assets, "_VENDOR", tmp_path)
    (tmp_path / "leaflet.js").touch()
    assert "leaflet.js" not in assets.missing_map_files()
    assert {"leaflet.css", "leaflet-heat.js", "countries-110m.json"} <= set(assets.missing_map_files())
    with pytest.raises(EnvironmentProblem, match="make setup"):
        assets.leaflet_css()


def test_files_are_fetched_once(tool, checkout, tmp_path, capsys):
    assert tool.main() == 0
    assert read_contents(checkout / "vendor") == {"a.js": "new dist/a.js", "a.LICENSE": "new LICENSE"}
    assert "2 files" in capsys.readouterr().out
    calls = (tmp_path / "npm.log").read_text()
    assert "ci --ignore-scripts" in calls
    assert tool.main() == 0
    assert (tmp_path / "npm.log").read_text() == calls
    assert not (tmp_path / "build").exists()


@pytest.mark.parametrize("change", ["lock", "list", "file", "gone"])
def test_files_are_fetched_again_after_a_change(tool, checkout, tmp_path, change):
    tool.main()
    if change == "lock":
        (checkout / "package-lock.json").write_text("{ }")
    elif change == "list":
        (checkout / "package.json").write_text(json.dumps({"vendor": {"a.js": "a/dist/a.js"}}))
    elif change == "file":
        (checkout / "vendor" / "a.js").write_text("half")
    else:
        (checkout / "vendor" / "a.js").unlink()
    assert not tool.is_complete(checkout)
    assert tool.main() == 0
    assert tool.is_complete(checkout)
    assert read_contents(checkout / "vendor")["a.js"] == "new dist/a.js"


@pytest.mark.parametrize("fault", [{"status": 1}, {"files": ("LICENSE",)}])
def test_failed_fetch_keeps_existing_files(tool, checkout, tmp_path, monkeypatch, capsys, fault):
    (checkout / "vendor").mkdir()
    (checkout / "vendor" / "a.js").write_text("old")
    use_npm(tool, monkeypatch, tmp_path, **fault)
    assert tool.main() == 1
    assert read_contents(checkout / "vendor") == {"a.js": "old"}
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert ("EINTEGRITY" in error) if "status" in fault else ("a/dist/a.js" in error)
    assert "complete log" not in error
    assert not (tmp_path / "build").exists()


def test_exit_status_without_npm_is_3(tool, checkout, tmp_path, monkeypatch, capsys):
    use_npm(tool, monkeypatch, tmp_path, version="")
    broken = tmp_path / "broken"
    broken.write_bytes(b"")
    monkeypatch.setattr(tool, "find_npm", lambda: [[str(broken)], [str(tmp_path / "npm")]])
    assert tool.main() == 3
    assert "requirements-node.txt" in capsys.readouterr().err
    assert not (checkout / "vendor").exists()
    use_npm(tool, monkeypatch, tmp_path)
    monkeypatch.setattr(tool, "find_npm", lambda: [[str(tmp_path / "none")], [str(tmp_path / "npm")]])
    assert tool.main() == 0, "the second npm is taken when the first one does not work"


def test_text_of_maps_is_legible():
    """No text of a map is smaller than the 13 px that the text of figures has at least."""
    sizes = [int(size) for size in re.findall(r"(?:font-size|font): ?(\d+)px", assets.map_css())]
    assert len(sizes) > 5
    assert min(sizes) >= 13
