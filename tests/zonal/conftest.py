from __future__ import annotations

from pandapower_nets import keep_networks

keep_networks()
