"""`mixupmp playground`: move r and watch the uncertainty landscape change while it trains."""

from importlib import import_module

from mixupmp.core.errors import MissingExtra

for _package in ("fastapi", "uvicorn"):
    try:
        import_module(_package)
    except ImportError as error:
        raise MissingExtra(_package, "serve", "The playground") from error

from mixupmp.web.playground.app import create_app, serve_playground  # noqa: E402
from mixupmp.web.playground.scene import Scene  # noqa: E402

__all__ = ["Scene", "create_app", "serve_playground"]
