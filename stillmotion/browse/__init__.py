"""A local page over an index: what moves like this, what looks like this, a map, and groups that can be named."""

from stillmotion.browse.app import create_app
from stillmotion.browse.server import serve

__all__ = ["create_app", "serve"]
