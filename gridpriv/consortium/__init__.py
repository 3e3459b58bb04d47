"""A run across several machines: folders, certificates, coordinator and zone agents."""
