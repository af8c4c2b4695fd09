"""The REST vocabulary: what server and clients say to each other, and the document made from it."""
