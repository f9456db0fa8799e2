"""`mixupmp playground`: move r and watch the uncertainty landscape change while it trains."""

from importlib import import_module

from mixupmp.core.errors import extra

for _package in ("fastapi", "uvicorn"):
    with extra(_package, "serve", "The playground"):
        import_module(_package)

from mixupmp.web.playground.app import create_app, serve_playground  # noqa: E402
from mixupmp.web.playground.scene import Scene  # noqa: E402

__all__ = ["Scene", "create_app", "serve_playground"]
