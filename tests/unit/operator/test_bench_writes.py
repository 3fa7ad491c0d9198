"""What the bench of the operator counts as a write, and as the renewal of a Lease."""

from bench.operator.api import counted_writes

SAID = """
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",group="",resource="configmaps",scope="resource",subresource="",verb="PATCH"} 3
apiserver_request_total{code="201",group="",resource="events",scope="resource",subresource="",verb="POST"} 2
apiserver_request_total{code="200",group="coordination.k8s.io",resource="leases",scope="resource",verb="PUT"} 1.2e+01
apiserver_request_total{code="201",group="coordination.k8s.io",resource="leases",scope="resource",verb="POST"} 1
apiserver_request_total{code="200",group="coordination.k8s.io",resource="leases",scope="resource",verb="GET"} 40
apiserver_request_total{code="200",group="",resource="pods",scope="cluster",verb="WATCH"} 7
apiserver_longrunning_requests{resource="pods",verb="PATCH"} 5
"""


def test_a_lease_is_counted_beside_the_other_writes_and_what_only_reads_is_not_counted() -> None:
    assert counted_writes(SAID) == (5, 13)


def test_a_server_that_has_served_no_write_has_served_none() -> None:
    assert counted_writes("") == (0, 0)
