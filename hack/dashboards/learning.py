"""Dashboards of what learns: RL Training Overview and Model Performance of the specification, Loop and Memory."""

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from dashboards.panels import AGENT, QUARTER, THIRD, WHOLE, curves, figure, marked, page

RUN = 'exported_namespace=~"$namespace"'
OF_ROLLOUT = 'exported_namespace=~"$namespace", model_deployment=~"$agent"'
COLLECTED = f"sum by (agent) (rate(agent_rl_trajectories_collected_total{{{AGENT}}}[5m]))"


def training_overview() -> Dashboard:
    """Collection, rewards, runs and what they use."""
    failed = f'sum(increase(agent_rl_training_jobs_total{{{AGENT}, result!="validated"}}[$__range]))'
    ended = f"sum(increase(agent_rl_training_jobs_total{{{AGENT}}}[$__range]))"
    return (
        page("learnloop / RL Training Overview", "learnloop-training", "Collection, rewards, runs, what they use.")
        .with_panel(figure("Runs that ended", "In the time shown.", ended))
        .with_panel(figure("Share validated", "Of the runs that ended.", f"1 - {failed} / {ended}", "percentunit"))
        .with_panel(
            figure("Most failures in a row", "Of one agent.", f"max(learnloop_training_failures_in_a_row{{{AGENT}}})")
        )
        .with_panel(figure("Runs under way", "That sent a heartbeat lately.", f"count(training_throughput{{{RUN}}})"))
        .with_panel(curves("Trajectories a second", "Stored, by agent.", {"{{agent}}": COLLECTED}, "cps"))
        .with_panel(
            curves(
                "Trajectories that are not stored",
                "Share of those that came.",
                {
                    "{{exported_namespace}}": "sum by (exported_namespace) (rate("
                    f"agent_rl_trajectory_collection_errors_total{{{RUN}}}[10m])) / sum by (exported_namespace) (rate("
                    f"agent_rl_trajectory_collection_attempts_total{{{RUN}}}[10m]))"
                },
                "percentunit",
            )
        )
        .with_panel(
            curves(
                "Rewards",
                "Raw rewards of trajectories: quantiles over an hour.",
                {
                    f"p{quantile}": f"histogram_quantile(0.{quantile}, sum by (le) (rate("
                    f"agent_rl_trajectory_reward_bucket{{{AGENT}}}[1h])))"
                    for quantile in (10, 50, 90)
                },
            )
        )
        .with_panel(
            curves(
                "Runs by result",
                "That ended within an hour.",
                {"{{result}}": f"sum by (result) (increase(agent_rl_training_jobs_total{{{AGENT}}}[1h]))"},
            )
        )
        .with_panel(
            curves(
                "Duration of runs",
                "Median wall time, by result.",
                {
                    "{{result}}": "histogram_quantile(0.5, sum by (le, result) (rate("
                    f"agent_rl_training_duration_seconds_bucket{{{AGENT}}}[1d])))"
                },
                "s",
            )
        )
        .with_row(Row("Runs under way"))
        .with_panel(
            curves(
                "Return",
                "Newest 100 episodes.",
                {"{{training_job}}": f"learnloop_training_return{{{RUN}}}"},
                span=THIRD,
            )
        )
        .with_panel(
            curves(
                "Length of episodes",
                "Mean of the newest 100, in steps.",
                {"{{training_job}}": f"learnloop_training_episode_length{{{RUN}}}"},
                span=THIRD,
            )
        )
        .with_panel(
            curves(
                "Steps a second",
                "Of the environment, all ranks.",
                {"{{training_job}}": f"training_throughput{{{RUN}}}"},
                span=THIRD,
            )
        )
        .with_panel(
            curves(
                "Losses",
                "Of the newest update.",
                {
                    "{{training_job}} loss": f"learnloop_training_loss{{{RUN}}}",
                    "{{training_job}} policy": f"learnloop_training_policy_loss{{{RUN}}}",
                    "{{training_job}} value": f"learnloop_training_value_loss{{{RUN}}}",
                },
                span=THIRD,
            )
        )
        .with_panel(
            curves(
                "Entropy and KL divergence",
                "In nats.",
                {
                    "{{training_job}} entropy": f"learnloop_training_entropy{{{RUN}}}",
                    "{{training_job}} KL": f"learnloop_training_kl_divergence{{{RUN}}}",
                },
                span=THIRD,
            )
        )
        .with_panel(
            curves(
                "Gradient and exploration",
                "Norm of the gradient before it is clipped; share of random actions.",
                {
                    "{{training_job}} gradient": f"learnloop_training_gradient_norm{{{RUN}}}",
                    "{{training_job}} ε": f"learnloop_training_epsilon{{{RUN}}}",
                },
                span=THIRD,
            )
        )
        .with_panel(
            curves(
                "Use of resources",
                "Share of what the first rank may use.",
                {"{{training_job}} {{resource}}": f"resource_utilization{{{RUN}}}"},
                "percentunit",
            )
        )
        .with_panel(
            curves(
                "Actions",
                "Share of each among the newest.",
                {"{{training_job}} {{action}}": f"learnloop_training_action_ratio{{{RUN}}}"},
                "percentunit",
            )
        )
        .with_row(Row("Cost"))
        .with_panel(
            curves(
                "CPUs and GPUs reserved",
                "By training, on average over an hour: CPU- and GPU-hours each hour.",
                {
                    "{{agent}} {{resource}}": "sum by (agent, resource) (rate("
                    f"learnloop_training_reserved_seconds_total{{{AGENT}}}[1h]))"
                },
            )
        )
        .with_panel(
            curves(
                "Money spent",
                "On training within a day, by the installation's prices.",
                {
                    "{{agent}} {{currency}}": "sum by (agent, currency) (increase("
                    f"learnloop_training_cost_total{{{AGENT}}}[1d]))"
                },
            )
        )
    )


def model_performance() -> Dashboard:
    """Rewards, errors and arms by model version."""
    version = "{{agent}} {{model_version}}"
    arm = 'namespace=~"$namespace", model_deployment=~"$agent"'
    return (
        page("learnloop / Model Performance", "learnloop-models", "What each model version earns and fails at.")
        .with_panel(curves("Mean reward", "Raw, by model.", {version: f"agent_rl_model_reward_mean{{{AGENT}}}"}))
        .with_panel(
            curves(
                "Error rate", "Share of episodes.", {version: f"agent_rl_model_error_rate{{{AGENT}}}"}, "percentunit"
            )
        )
        .with_panel(curves("Average reward", "Of each agent.", {"{{agent}}": f"average_reward{{{AGENT}}}"}))
        .with_panel(
            curves("Success rate", "Of each agent.", {"{{agent}}": f"task_success_rate{{{AGENT}}}"}, "percentunit")
        )
        .with_panel(
            curves(
                "People's opinions",
                "Given within a day, by agent.",
                {
                    "{{agent}} {{opinion}}": "sum by (agent, opinion) (increase("
                    f"learnloop_feedback_given_total{{{AGENT}}}[1d]))"
                },
                span=WHOLE,
            )
        )
        .with_row(Row("Arms side by side"))
        .with_panel(
            curves(
                "Success of each arm",
                "Share of its ended episodes.",
                {
                    "{{model_deployment}} {{revision}}": "sum by (model_deployment, revision) (rate("
                    f'learnloop_episodes_ended_total{{{arm}, outcome="success"}}[5m])) / sum by (model_deployment, '
                    f"revision) (rate(learnloop_episodes_ended_total{{{arm}}}[5m]))"
                },
                "percentunit",
                THIRD,
            )
        )
        .with_panel(
            curves(
                "Episodes of each arm",
                "Ended a second.",
                {
                    "{{model_deployment}} {{revision}}": "sum by (model_deployment, revision) (rate("
                    f"learnloop_episodes_ended_total{{{arm}}}[5m]))"
                },
                "cps",
                THIRD,
            )
        )
        .with_panel(
            curves(
                "Latency of each arm",
                "99th percentile of what the server needs for an action.",
                {
                    "{{model_deployment}} {{revision}}": "histogram_quantile(0.99, sum by (le, model_deployment, "
                    f'revision) (rate(learnloop_policy_request_duration_seconds_bucket{{{arm}, verb="act"}}[5m])))'
                },
                "s",
                THIRD,
            )
        )
        .with_panel(
            curves(
                "Safety interventions of each arm",
                "Actions a second that the policy's shield replaced.",
                {
                    "{{model_deployment}} {{revision}}": "sum by (model_deployment, revision) (rate("
                    f"learnloop_safety_interventions_total{{{arm}}}[5m]))"
                },
                "ops",
                THIRD,
            )
        )
        .with_row(Row("Learning"))
        .with_panel(
            curves("Samples to convergence", "Newest run.", {"{{agent}}": f"learning_efficiency{{{AGENT}}}"}, "short")
        )
        .with_panel(curves("Convergence", "Newest run.", {"{{agent}}": f"model_convergence{{{AGENT}}}"}, "percentunit"))
    )


def loop() -> Dashboard:
    """The return over time, with weights, promotions and rollbacks."""
    happened = f"changes(learnloop_rollouts_total{{{AGENT}, result=%s}}[1m]) > 0"
    marks = [
        ("Rolled back", "red", happened % '"rolled_back"'),
        ("Promoted", "green", happened % '"promoted"'),
        ("Anomaly", "orange", f"changes(learnloop_anomalies_total{{{AGENT}}}[1m]) > 0"),
    ]
    made = page("learnloop / Loop", "learnloop-loop", "Whether agents get better, and what was done to them.")
    return (
        marked(made, marks)
        .with_panel(
            curves(
                "Reward",
                "Mean raw reward of the newest 100 episodes; by model version and of the agent.",
                {
                    "{{agent}}": f"average_reward{{{AGENT}}}",
                    "{{agent}} {{model_version}}": f"agent_rl_model_reward_mean{{{AGENT}}}",
                },
                span=WHOLE,
            )
        )
        .with_panel(
            curves(
                "Weight of the canary",
                "Share of new episodes.",
                {"{{model_deployment}}": f"learnloop_rollout_weight_ratio{{{OF_ROLLOUT}}}"},
                "percentunit",
                WHOLE,
            )
        )
        .with_panel(
            figure(
                "Promoted",
                "Models, in the time shown.",
                f'sum(increase(learnloop_rollouts_total{{{AGENT}, result="promoted"}}[$__range]))',
            )
        )
        .with_panel(
            figure(
                "Rolled back",
                "Models, in the time shown.",
                f'sum(increase(learnloop_rollouts_total{{{AGENT}, result="rolled_back"}}[$__range]))',
            )
        )
        .with_panel(figure("Anomalous now", "Agents.", f"sum(learnloop_anomalous{{{AGENT}}})", span=QUARTER))
        .with_panel(figure("Episodes a second", "Stored.", f"sum({COLLECTED})", "cps"))
    )


def memory() -> Dashboard:
    """Whether recalling helps, how long it takes, and what is kept."""
    recall = "histogram_quantile(0.%s, sum by (le) (rate(memory_latency_bucket[5m])))"
    return (
        page("learnloop / Memory", "learnloop-memory", "Whether recalls help, how long they take, what is kept.")
        .with_panel(
            curves("Recalls that helped", "Share.", {"{{agent}}": f"memory_utilization{{{AGENT}}}"}, "percentunit")
        )
        .with_panel(
            curves("Latency of a recall", "Database included.", {"p50": recall % "50", "p99": recall % "99"}, "s")
        )
        .with_panel(
            curves(
                "Recalls judged",
                "A second, by verdict.",
                {"{{verdict}}": f"sum by (verdict) (rate(learnloop_recalls_judged_total{{{AGENT}}}[5m]))"},
                "cps",
            )
        )
        .with_panel(
            curves(
                "Memories kept",
                "Of agents with a budget.",
                {"{{agent}}": f"sum by (agent) (learnloop_memory_held{{{AGENT}}})"},
            )
        )
        .with_panel(
            curves(
                "Consolidation",
                "What it ended and made, an hour.",
                {"{{what}}": f"sum by (what) (increase(learnloop_memory_consolidated_total{{{RUN}}}[1h]))"},
            )
        )
        .with_panel(curves("Vector store", "1 while it keeps up.", {"{{pod}}": "learnloop_vector_store_up"}))
        .with_panel(
            curves(
                "Texts without vector",
                "Given up by the embedder.",
                {"{{pod}}": "learnloop_embedder_texts_without_vector"},
            )
        )
        .with_panel(
            curves(
                "Refused embedder",
                "Namespaces that keep the one before.",
                {"{{pod}}": "learnloop_embedder_refused_namespaces"},
            )
        )
    )
