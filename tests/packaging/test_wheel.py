"""The built distributions are complete and run without the source tree."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
BUILD = "from setuptools import build_meta; print(build_meta.build_{what}({out!r}))"


def shell(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(word) for word in command]
    process = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    return process.stdout


def build(what: str, source: Path, out: Path) -> Path:
    output = shell(sys.executable, "-c", BUILD.format(what=what, out=str(out)), cwd=source)
    return out / output.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the sdist, which is built from the files that git tracks and nothing else."""
    folder = tmp_path_factory.mktemp("built")
    for name in shell("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines():
        if (ROOT / name).is_file():
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "source" / name).write_bytes((ROOT / name).read_bytes())
    sdist = build("sdist", folder / "source", folder)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return build("wheel", folder / sdist.name.removesuffix(".tar.gz"), folder)


def test_the_wheel_holds_every_module_and_what_modules_read(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    ours = {str(path.relative_to(ROOT)) for path in (ROOT / "stillmotion").rglob("*.py")}
    assert ours <= names
    assert {"stillmotion/py.typed", "stillmotion/report/page.html"} <= names
    assert not any(name.startswith(("tests/", "benchmarks/", "tools/")) for name in names)


def test_the_wheel_runs_in_an_empty_environment_from_another_folder(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    site_packages = Path(
        shell(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip()
    )
    zipfile.ZipFile(wheel).extractall(site_packages)  # as an installer does with a pure wheel
    # Dependencies are added by a path in a .pth file. The .pth files in that folder are not run, so that the source
    # tree that is installed for these tests cannot be imported.
    (site_packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    module_file = shell(python, "-c", "import stillmotion; print(stillmotion.__file__)", cwd=tmp_path)
    assert Path(module_file.strip()).is_relative_to(site_packages)
    run = ("-m", "stillmotion", "pretrain", "--recipe", "k400-simclr", "--debug", "--optim.epochs", "1")
    shell(python, *run, "--data.synthetic.num-videos", "16", "--out", "run", cwd=tmp_path)
    assert "report.html" in shell(python, "-m", "stillmotion", "report", "run", cwd=tmp_path)


@pytest.mark.parametrize(
    ("missing", "call", "extra"),
    [
        (
            "transformers",
            "from stillmotion.models.pretrained.checkpoint_conversion import import_transformers as f; f()",
            "models",
        ),
    ],
)
def test_a_missing_extra_is_one_line_with_the_install_command(missing: str, call: str, extra: str) -> None:
    hide = f"import sys; sys.modules[{missing!r}] = None; from stillmotion.errors import StillmotionError\n"
    code = hide + f"try:\n    {call}\nexcept StillmotionError as error:\n    print(error)"
    output = shell(sys.executable, "-c", code, cwd=ROOT)
    assert f"pip install 'stillmotion[{extra}]'" in output
    assert len(output.splitlines()) == 1
