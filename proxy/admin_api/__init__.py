"""The admin API: operators list, approve and reject proposals, on a socket that agents cannot reach."""
