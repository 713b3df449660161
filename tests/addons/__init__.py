"""The addons by themselves, with as much of mitmproxy as the daemon imports."""

import warnings

from proxy.system import lean_imports

lean_imports.import_only_what_is_used()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # pyparsing's, of names that mitmproxy uses
    import mitmproxy.master  # noqa: F401
