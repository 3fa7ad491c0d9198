"""Names that more than one part must agree on: group, labels, environment variables, metrics, subjects."""

GROUP = "learnloop.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
CATEGORY = "learnloop"

# Labels on everything the operator creates.
LABEL_AGENT = f"{GROUP}/learning-agent"
LABEL_TRAINING_JOB = f"{GROUP}/training-job"
LABEL_STUDY = f"{GROUP}/study"  # on a trial: the TrainingJob whose study it belongs to
LABEL_DEPLOYMENT = f"{GROUP}/model-deployment"
LABEL_MEMORY = f"{GROUP}/memory-service"
LABEL_REVISION = f"{GROUP}/revision"
LABEL_GATE_SUITE = f"{GROUP}/gate-suite"
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_PART_OF = "app.kubernetes.io/part-of"
MANAGED_BY = "learnloop"

# Annotations a person (or the CLI, or an Argo CD action) sets to say something to the operator. Form of every value:
#     WHAT[ at WHEN][ by WHO]        e.g. 1a2b3c4d/2 at 2026-01-31T12:00:00.000Z by alice@example.com
# WHAT is a REVISION, or REVISION/STEP with steps from 1. WHEN only makes a value new: the same one is answered once.
# WHO must be the writer's own user name where the chart's admission policy is installed; elsewhere it is a claim.
# Of several values that are set together the first of VERBS is obeyed; the order is that of caution.
VERBS = ("abort", "reject", "undo", "pause", "restart", "retry", "resume", "skip", "promote", "approve")
ANNOTATION_TRAJECTORIES = f"{GROUP}/trajectories-at-trigger"  # TrainingJob; episodes of its agent when it was triggered
ANNOTATION_TRAIN = f"{GROUP}/train"  # LearningAgent; any new value: train now
ANNOTATION_ABORT = f"{GROUP}/abort"  # take this canary, or this promoted revision while it is guarded, back now
ANNOTATION_REJECT = f"{GROUP}/reject"  # refuse the step that waits for approval or is on hold: rolled back, and blocked
ANNOTATION_UNDO = f"{GROUP}/undo"  # roll this promoted revision back: to the warm old arm, else to status.lastStable
ANNOTATION_PAUSE = f"{GROUP}/pause"  # hold at this weight; evidence keeps counting, a breach still rolls back
ANNOTATION_RESTART = f"{GROUP}/restart"  # restarts the rollout of this canary at the first step, without evidence
ANNOTATION_RETRY = f"{GROUP}/retry"  # REVISION, or all, or any new value for blockedRevision: try it again
ANNOTATION_RESUME = f"{GROUP}/resume"  # end the hold of pause
ANNOTATION_SKIP = f"{GROUP}/skip"  # pass the current step without its evidence; refused while a check is breached
ANNOTATION_PROMOTE = f"{GROUP}/promote"  # the canary past its steps, or an experiment's winner; never over a breach
ANNOTATION_APPROVE = f"{GROUP}/approve"  # pass the pause it waits at

ANNOTATION_OVERRIDE = f"{GROUP}/override"
"""A person decides in the policy's place. It is signed as VERBS are; WHAT is a query string, which the operator's
rollout/state/overrides.py describes."""

ANNOTATION_AUTHOR = f"{GROUP}/author"  # who wrote the spec, where the chart's approvals.fourEyes asks for it


def verb_annotation(verb: str) -> str:
    """The annotation of one of VERBS."""
    return f"{GROUP}/{verb}"


# Ports of the pods learnloop runs.
PORT_SERVING = 8080
PORT_DATA = 8080
PORT_PROBES = 8081  # probes and metrics of all servers: no flood of callers takes them away

# A projected service-account token with this audience proves the caller's namespace to the data plane.
TOKEN_AUDIENCE = "learnloop"
RUN_AUDIENCE = f"run.{GROUP}"
"""Of the ranks of a training run: their tokens open what a rank does at the data plane, and nothing else."""
GATE_AUDIENCE = f"gate.{GROUP}"
"""Of gate suites: their tokens hand a report in at the data plane, and ask policy servers."""
TOKEN_DIRECTORY = "/var/run/secrets/learnloop.dev"
TOKEN_FILE = f"{TOKEN_DIRECTORY}/token"
MEMORY_TOKEN_FILE = f"{TOKEN_DIRECTORY}/memory-token"
"""Audience of tokens for the namespace's own MemoryService alone: its pods could forward a token they receive."""


def memory_audience(namespace: str, memory_service: str) -> str:
    """The audience of tokens for one MemoryService."""
    return f"memory.{GROUP}/{namespace}/{memory_service}"


# The authorities that sign the parts' certificates, next to the token. The operator keeps a ConfigMap of this
# name in each namespace that it works in; without TLS there is none.
CA_CONFIG_MAP = "learnloop-ca"
CA_KEY = "ca.crt"
CA_FILE = f"{TOKEN_DIRECTORY}/{CA_KEY}"
ANNOTATION_PORT = "prometheus.io/port"  # where the pod serves its metrics
ANNOTATION_SCHEME = "prometheus.io/scheme"  # https: the pod serves its metrics, and all else, by TLS
# Pods that have to end by themselves are left out of service meshes: a sidecar that goes on would keep them from it.
NO_SIDECAR = {
    "sidecar.istio.io/inject": "false",
    "linkerd.io/inject": "disabled",
    "consul.hashicorp.com/connect-inject": "false",
}
NO_SIDECAR_LABELS = {"kuma.io/sidecar-injection": "disabled"}
ENV_TLS_CA = "LEARNLOOP_TLS_CA"  # authorities trusted in addition to the system's; default: CA_FILE
ENV_TLS_CERTIFICATE = "LEARNLOOP_TLS_CERTIFICATE"  # a server's chain, and its key; absent: plain HTTP
ENV_TLS_KEY = "LEARNLOOP_TLS_KEY"
TLS_SECRET = "learnloop-tls"  # of a namespace in tls.namespaces: tls.crt, tls.key and ca.crt of the pods there
WORKLOADS_DOMAIN = "workloads.learnloop.dev"
"""Each certificate of the data plane's making bears it, and NAMESPACE before it: who reads metrics from a pod's address
knows by it what answers there."""

# A ConfigMap of a TrainingJob's namespace with the user's environment, as the ranks see it.
ENVIRONMENT_DIRECTORY = "/etc/learnloop/environments"
ENV_ENVIRONMENT_DIRECTORY = "LEARNLOOP_ENVIRONMENT_DIRECTORY"

# The base model of a language model where it is a volume (pvc:// and oci://), as trainers and gateways see it.
BASE_MODEL_DIRECTORY = "/var/lib/learnloop/base-model"
ENV_BASE_MODEL = "LEARNLOOP_BASE_MODEL"

ENV_DATA_URL = "LEARNLOOP_DATA_URL"
ENV_TOKEN_FILE = "LEARNLOOP_TOKEN_FILE"
ENV_AUDIENCE = "LEARNLOOP_AUDIENCE"  # of the tokens that a data plane takes; absent: TOKEN_AUDIENCE
ENV_MEMORY_TOKEN_FILE = "LEARNLOOP_MEMORY_TOKEN_FILE"  # for LEARNLOOP_MEMORY_URL; absent: MEMORY_TOKEN_FILE
ENV_NAMESPACE = "LEARNLOOP_NAMESPACE"
ENV_PSEUDONYM_KEY = "LEARNLOOP_PSEUDONYM_KEY"  # the same at publishers and data plane; absent: no pseudonyms
ENV_POD_NAME = "POD_NAME"
ENV_PROBES_PORT = "LEARNLOOP_PROBES_PORT"  # of probes and metrics; absent: the server's own port

# What the policy servers of a ModelDeployment know one another's episodes and copies by.
EPISODE_KEY = "key"
EPISODE_KEY_DIRECTORY = "/var/run/secrets/episodes.learnloop.dev"
ENV_CALLERS = "LEARNLOOP_CALLERS"  # token|anybody: callers that a policy server accepts
ENV_CALLER_NAMESPACES = "LEARNLOOP_CALLER_NAMESPACES"  # besides its own, by commas
ENV_EPISODE_KEY_FILE = "LEARNLOOP_EPISODE_KEY_FILE"
HEADER_MARK = "x-learnloop-mark"

HEADER_ARM = "x-learnloop-arm"
HEADER_EPISODE = "x-learnloop-episode"  # of a gateway before a language model: the conversation a request belongs to
HEADER_TRAJECTORY = "x-learnloop-trajectory"  # what the gateway records the conversation under: feedback goes by it
HEADER_REVISION = "x-learnloop-revision"  # who answered; "fallback" where no arm did
HEADER_OVERRIDE = "x-learnloop-override"  # a person decided in the model's place: fixed|fallback
HEADER_HOP = "x-learnloop-hop"  # one gateway asks another: it answers itself, or not at all
HEADER_TOKEN = "x-learnloop-token"  # the token where a proxy keeps Authorization for itself, as the API server's does
HEADER_NAMESPACE = "x-learnloop-namespace"  # honoured only from the operator's own service account

# NATS subjects (specification 001). Publishers append `.<namespace>.<name>` so that rights and filters go by subject.
SUBJECT_TRAJECTORY = "agent.rl.trajectory.v1"
SUBJECT_REWARD = "agent.rl.reward.v1"
SUBJECT_TRAINING_REQUEST = "agent.rl.training.request.v1"
SUBJECT_TRAINING_STATUS = "agent.rl.training.status.v1"
SUBJECT_MODEL_DEPLOYED = "agent.rl.model.deployed.v1"

# Metrics of the policy server; every one carries the labels model_deployment and revision.
METRIC_EPISODES_OPENED = "learnloop_episodes_opened_total"
METRIC_EPISODES_ENDED = "learnloop_episodes_ended_total"  # + outcome: success|failure|error|withdrawn
METRIC_CALLERS_REFUSED = "learnloop_callers_refused_total"  # + reason: Unauthorized|Forbidden|NotReady
METRIC_EPISODE_SECONDS = "learnloop_episode_seconds"  # histogram of the time from opening to end
METRIC_EPISODE_RETURN_GAIN = "learnloop_episode_return_gain_total"  # sum of the positive returns
METRIC_EPISODE_RETURN_LOSS = "learnloop_episode_return_loss_total"  # sum of |negative returns|; counters never fall
METRIC_REQUEST_SECONDS = "learnloop_policy_request_duration_seconds"  # histogram + verb
METRIC_REQUEST_ERRORS = "learnloop_policy_request_errors_total"  # + verb
METRIC_UNPROVEN = "learnloop_requests_unproven_total"  # + verb: act|end|shadow; no server had opened or sent it
METRIC_REQUESTS_UNCOUNTED = "learnloop_requests_uncounted_total"  # + verb, reason: _APART of server_metrics.py
METRIC_ENDINGS_UNCOUNTED = "learnloop_endings_uncounted_total"  # + reason: again|late
METRIC_INTERVENTIONS = "learnloop_safety_interventions_total"  # actions that a served policy's shield replaced
METRIC_SERVER_STARTED = "learnloop_server_started_seconds"  # Unix time; tells one process of a pod from the next

# Additional metrics of a gateway before a language model.
METRIC_LANGUAGE_TURNS = "learnloop_language_turns_total"  # + recorded: tokens|text|nothing
METRIC_LANGUAGE_ROWS = "learnloop_language_rows_total"  # + reason: why a row of tokens began
METRIC_LANGUAGE_TOKENS = "learnloop_language_tokens_total"  # + direction: input|output
METRIC_LANGUAGE_FIRST = "learnloop_language_first_token_seconds"  # histogram
METRIC_LANGUAGE_FALLBACKS = "learnloop_language_fallbacks_total"  # + outcome: answered|failed
METRIC_LANGUAGE_THROTTLED = "learnloop_language_throttled_total"

# Metrics of an arm in shadow; `revision` is always that arm's, in every process that counts.
METRIC_SHADOW_COMPARED = "learnloop_shadow_compared_total"  # requests whose answer was compared with stable's
METRIC_SHADOW_AGREED = "learnloop_shadow_agreed_total"  # those with the same greedy action
METRIC_SHADOW_ERRORS = "learnloop_shadow_errors_total"
METRIC_SHADOW_SECONDS = "learnloop_shadow_duration_seconds"  # histogram
METRIC_SHADOW_LOST = "learnloop_shadow_lost_total"  # counted by stable; + reason: full|unreachable|refused


def nats_inbox(namespace: str, account: str = "") -> str:
    """Prefix of the subjects of replies to a ServiceAccount's clients; other accounts may not subscribe to them.

    The name of a ServiceAccount may hold dots, which would part it for NATS, so that `a` could read for `a.b`. It holds
    no underscore: put for the dots, one gives each name a token of its own. Without an account (clients with
    credentials of their own) it is the namespace's prefix.
    """
    return f"_INBOX_{namespace}.{account.replace('.', '_')}" if account else f"_INBOX_{namespace}"
