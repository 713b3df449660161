"""`interlock probe`: calls every tool of a server in a sinkhole, and reports what the server did."""
