"""The fast lane: plain HTTP/1 calls go from the socket to the gate without mitmproxy's layers.

A head that the layers have judged once on a connection is a template. A request with the same head, byte for byte
but for its length, goes straight to the gate; its response comes back the same way. Anything else goes to the layers as
the same bytes, also in the middle of a call.
"""
