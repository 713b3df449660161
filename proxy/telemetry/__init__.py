"""Audit events in the forms that other systems read: OpenTelemetry, OCSF, CloudEvents, syslog and CEF."""
