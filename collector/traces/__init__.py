"""Request traces: the spans of prefill and decode engines, joined to one trace per request."""
