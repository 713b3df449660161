"""The list of what is installed where the setting `fast` is on."""

from __future__ import annotations

from addons.mitm.fast import header_index, message_types
from addons.mitm.fast.connection_handler import FastConnectionHandler
from addons.mitm.fast.hook_table import HookTable
from addons.mitm.fast.http_layer import FastHttp1Client, FastHttpClient, FastHttpLayer
from addons.mitm.fast.tls_contexts import CachedCertificates
from addons.mitm.fast.tls_records import FastClientTls, FastServerTls
from addons.mitm.fast.tls_sessions import ServerTlsSessions
from addons.mitm.patches import Replacements

FAST = Replacements(
    addon_manager=HookTable,
    certificates=CachedCertificates,
    connection_handler=FastConnectionHandler,
    http_layer=FastHttpLayer,
    http_client=FastHttpClient,
    http1_client=FastHttp1Client,
    client_tls=FastClientTls,
    server_tls=FastServerTls,
    addons=(ServerTlsSessions,),
    functions=(header_index.install, message_types.install),
)
