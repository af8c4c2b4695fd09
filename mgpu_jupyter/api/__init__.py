"""The REST vocabulary: what server and clients exchange, and the document made from it."""
