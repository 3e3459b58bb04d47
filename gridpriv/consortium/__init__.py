"""A run whose zones work where their data are: folders, certificates, coordinator, zone agents."""
