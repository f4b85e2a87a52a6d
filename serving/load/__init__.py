"""A load generator for a serving tier: open loop, streamed, and counted request by request."""
