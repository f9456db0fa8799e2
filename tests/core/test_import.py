"""What `import mixupmp` brings, and what it leaves until it is used."""

from __future__ import annotations

import subprocess
import sys


def modules_after(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after this statement."""
    code = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def test_the_package_alone_imports_no_torch() -> None:
    loaded = modules_after("import mixupmp; mixupmp.__version__; dir(mixupmp)")
    assert loaded.isdisjoint({"torch", "numpy", "sklearn", "rich", "typer"})


def test_fitting_and_loading_need_no_heavy_package_but_torch() -> None:
    loaded = modules_after("import mixupmp; mixupmp.fit, mixupmp.load, mixupmp.Posterior, mixupmp.mixup_mp")
    assert "torch" in loaded
    assert loaded.isdisjoint({"sklearn", "scipy", "pandas", "matplotlib", "typer", "jinja2", "ray", "laplace", "onnx"})


def test_subpackages_are_attributes() -> None:
    assert "mixupmp" in modules_after(
        "import mixupmp; mixupmp.data.load, mixupmp.metrics.evaluate, mixupmp.networks.CNN"
    )
