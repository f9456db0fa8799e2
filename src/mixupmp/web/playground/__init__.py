"""`mixupmp playground`: move r and watch the uncertainty landscape change while it trains."""

from mixupmp.web.playground.scene import Scene

__all__ = ["Scene"]
