"""``--cluster tls://...``: Dask's own TLS settings are honoured, and nobody gets in without."""

from __future__ import annotations

import pytest

from gridpriv.consortium.keys import make_keys, write_keys
from gridpriv.core.cluster import connect
from gridpriv.core.errors import InputError

distributed = pytest.importorskip("distributed")


@pytest.mark.slow
def test_a_cluster_is_reached_by_certificate_only(tmp_path):
    import dask

    authority, parties = make_keys(["client"])
    write_keys(tmp_path, authority, parties)

    def of(party):
        place = tmp_path / party
        return str(place / "certificate.pem"), str(place / "key.pem")

    server, client = of("coordinator"), of("client")
    given = distributed.Security(
        tls_ca_file=str(tmp_path / "authority" / "certificate.pem"), require_encryption=True,
        tls_scheduler_cert=server[0], tls_scheduler_key=server[1],
        tls_worker_cert=server[0], tls_worker_key=server[1],
        tls_client_cert=client[0], tls_client_key=client[1],
    )  # fmt: skip
    with distributed.LocalCluster(
        n_workers=1, processes=False, dashboard_address=None, security=given, protocol="tls://"
    ) as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tls://")
        settings = {
            "distributed.comm.require-encryption": True,
            "distributed.comm.tls.ca-file": str(tmp_path / "authority" / "certificate.pem"),
            "distributed.comm.tls.client.cert": client[0],
            "distributed.comm.tls.client.key": client[1],
        }
        with dask.config.set(settings), connect(address) as found:
            assert found.submit(sum, [1, 2]).result() == 3
        with pytest.raises((InputError, TypeError)):
            connect(address)
