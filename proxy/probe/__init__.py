"""`interlock probe`: calls every tool of a server in a sinkhole and judges what the server did."""
