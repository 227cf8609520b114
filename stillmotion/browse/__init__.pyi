from stillmotion.browse.app import create_app as create_app
from stillmotion.browse.open_index import open_or_build_index as open_or_build_index
from stillmotion.browse.server import serve as serve
