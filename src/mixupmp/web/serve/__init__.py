"""`mixupmp serve`: a posterior behind HTTP, within limits."""

from importlib import import_module

from mixupmp.core.errors import extra

for _package in ("fastapi", "prometheus_client", "python_multipart", "uvicorn"):
    with extra(_package, "serve", "The server"):
        import_module(_package)

from mixupmp.web.serve.app import create_app, serve_model  # noqa: E402
from mixupmp.web.serve.model import ServedModel, served_model  # noqa: E402
from mixupmp.web.serve.schemas import Limits  # noqa: E402

__all__ = ["Limits", "ServedModel", "create_app", "serve_model", "served_model"]
