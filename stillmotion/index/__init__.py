"""An index of moments on disk: what moves like this, and what looks like this."""

from stillmotion.data.moments import Cutting, Moment
from stillmotion.index.build import build
from stillmotion.index.index import Index
from stillmotion.index.nearest import Found
from stillmotion.index.places import default_place
from stillmotion.index.query import Query, embed_query

__all__ = ["Cutting", "Found", "Index", "Moment", "Query", "build", "default_place", "embed_query"]
