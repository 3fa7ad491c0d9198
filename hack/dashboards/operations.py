"""Dashboards of what is deployed and of the servers: Deployment Health of the specification, and Operator."""

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from dashboards.panels import AGENT, THIRD, curves, figure, marked, page

OF_ROLLOUT = 'exported_namespace=~"$namespace", model_deployment=~"$agent"'


def deployment_health() -> Dashboard:
    """Canaries, their weights, rollbacks and validations."""
    ended = f"sum(increase(learnloop_rollouts_total{{{AGENT}}}[$__range]))"
    well = f'sum(increase(learnloop_rollouts_total{{{AGENT}, result=~"promoted.*"}}[$__range]))'
    passed = f'sum(increase(agent_rl_model_validations_total{{{AGENT}, result="passed"}}[$__range]))'
    judged = f"sum(increase(agent_rl_model_validations_total{{{AGENT}}}[$__range]))"
    taken = f"sum by (agent, reason) (increase(learnloop_rollbacks_total{{{AGENT}}}[1h]))"
    made = page("learnloop / Deployment Health", "learnloop-deployments", "Canaries, rollbacks and validations.")
    back = f'changes(learnloop_rollouts_total{{{AGENT}, result="rolled_back"}}[1m]) > 0'
    return (
        marked(made, [("Rolled back", "red", back)])
        .with_panel(figure("Rollouts that ended", "In the time shown.", ended))
        .with_panel(figure("Promoted", "Share of them.", f"{well} / {ended}", "percentunit"))
        .with_panel(figure("Validations passed", "Share of models.", f"{passed} / {judged}", "percentunit"))
        .with_panel(
            figure(
                "Oldest gap in the evidence",
                "Of a rollout that runs.",
                f"max(time() - learnloop_evidence_missing_since_timestamp_seconds{{{OF_ROLLOUT}}})",
                "s",
            )
        )
        .with_panel(
            curves(
                "Canaries",
                "Share of new episodes.",
                {"{{model_deployment}}": f"learnloop_rollout_weight_ratio{{{OF_ROLLOUT}}}"},
                "percentunit",
            )
        )
        .with_panel(
            curves(
                "Traffic",
                "Episodes opened a second, by revision.",
                {
                    "{{model_deployment}} {{revision}}": "sum by (model_deployment, revision) (rate("
                    'learnloop_episodes_opened_total{namespace=~"$namespace", model_deployment=~"$agent"}[5m]))'
                },
                "cps",
            )
        )
        .with_panel(
            curves(
                "Rollbacks",
                "Within an hour, by reason.",
                {"{{agent}} {{reason}}": taken},
                span=THIRD,
            )
        )
        .with_panel(
            curves(
                "Validations",
                "Within an hour, by result.",
                {"{{result}}": f"sum by (result) (increase(agent_rl_model_validations_total{{{AGENT}}}[1h]))"},
                span=THIRD,
            )
        )
        .with_panel(
            curves(
                "From a breach to the rollback",
                "Of gross breaches.",
                {
                    f"p{quantile}": f"histogram_quantile(0.{quantile}, sum by (le) (rate("
                    "learnloop_fast_lane_breach_to_rollback_seconds_bucket[1h])))"
                    for quantile in (50, 99)
                },
                "s",
                THIRD,
            )
        )
    )


def operator() -> Dashboard:
    """The operator and the data plane themselves."""
    passes = "histogram_quantile(0.99, sum by (le, kind) (rate(learnloop_reconcile_seconds_bucket[5m])))"
    return (
        page("learnloop / Operator", "learnloop-operator", "The operator and the data plane.", agents=False)
        .with_panel(figure("Leaders", "Exactly 1.", "sum(learnloop_leader)"))
        .with_panel(figure("Objects that wait", "For a pass.", "sum(learnloop_queue_depth)"))
        .with_panel(figure("NATS", "1 while all are connected.", "min(learnloop_nats_up)"))
        .with_panel(
            figure(
                "Next certificate ends in",
                "cert-manager, or an upgrade, renews it.",
                "min(learnloop_certificate_expiry_timestamp_seconds > 0) - time()",
                "s",
            )
        )
        .with_panel(
            curves(
                "Passes",
                "A second, by kind and result.",
                {"{{kind}} {{result}}": "sum by (kind, result) (rate(learnloop_reconcile_total[5m]))"},
                "cps",
            )
        )
        .with_panel(
            curves(
                "Duration of a pass",
                "99th percentile.",
                {"{{kind}}": passes},
                "s",
            )
        )
        .with_panel(
            curves(
                "Writes to the API server",
                "A second.",
                {"{{kind}} {{verb}}": "sum by (kind, verb) (rate(learnloop_api_writes_total[5m]))"},
                "cps",
            )
        )
        .with_row(Row("Data plane"))
        .with_panel(
            curves(
                "Requests",
                "99th percentile, by route.",
                {
                    "{{route}}": "histogram_quantile(0.99, sum by (le, route) (rate("
                    "learnloop_data_request_duration_seconds_bucket[5m])))"
                },
                "s",
            )
        )
        .with_panel(
            curves(
                "Streams",
                "Share of their room that unread messages take.",
                {"{{stream}}": "max by (stream) (learnloop_stream_unread_ratio)"},
                "percentunit",
            )
        )
        .with_panel(
            curves(
                "Refused messages",
                "An hour, by code.",
                {"{{code}}": "sum by (code) (increase(learnloop_refused_messages_total[1h]))"},
            )
        )
        .with_panel(
            curves(
                "Background work that failed",
                "An hour.",
                {"{{work}}": "sum by (work) (increase(learnloop_background_failures_total[1h]))"},
            )
        )
    )
