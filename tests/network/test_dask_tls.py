"""``--cluster tls://...``: Dask's TLS settings are applied; other connections are refused."""

from __future__ import annotations

import pytest

from gridpriv.consensus.transport import connect
from gridpriv.core.errors import InputError


@pytest.mark.slow
def test_a_cluster_is_reached_by_certificate_only():
    distributed, dask = pytest.importorskip("distributed"), pytest.importorskip("dask")
    pytest.importorskip("cryptography")
    own = distributed.Security.temporary()
    with distributed.LocalCluster(
        n_workers=1, processes=False, dashboard_address=None, security=own, protocol="tls://"
    ) as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tls://")
        settings = {
            "distributed.comm.require-encryption": True,
            "distributed.comm.tls.ca-file": own.tls_ca_file,
            "distributed.comm.tls.client.cert": own.tls_client_cert,
            "distributed.comm.tls.client.key": own.tls_client_key,
        }
        with dask.config.set(settings), connect(address) as result:
            assert result.submit(sum, [1, 2]).result() == 3
        with pytest.raises(InputError, match="cannot be reached"):
            connect(address)
