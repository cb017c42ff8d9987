"""The launcher's flags as keyword arguments. go test ./internal/release -run TestPythonFlags -update writes this file."""

from __future__ import annotations

SWITCHES = frozenset(
    (
        "virtual_local_rank",
        "standalone",
        "require_auth",
        "module",
        "no_python",
        "run_path",
        "use_env",
        "dry_run",
        "preflight",
    )
)
VALUES = frozenset(
    (
        "nnodes",
        "nproc_per_node",
        "nnodes_multiple",
        "world_size_multiple",
        "role",
        "node_rank",
        "numa_binding",
        "rdzv_backend",
        "rdzv_endpoint",
        "rdzv_id",
        "launch_id",
        "rdzv_conf",
        "rdzv_secret_file",
        "master_addr",
        "master_port",
        "local_addr",
        "worker_store_port",
        "store_users",
        "start_method",
        "log_dir",
        "redirects",
        "tee",
        "local_ranks_filter",
        "duplicate_stdout_filters",
        "duplicate_stderr_filters",
        "log_line_prefix_template",
        "log_max_size",
        "log_max_files",
        "logs_specs",
        "max_restarts",
        "restart_window",
        "max_node_losses",
        "rejoin_timeout",
        "grow",
        "min_uptime",
        "monitor_interval",
        "signals_to_handle",
        "shutdown_timeout",
        "restart_grace",
        "error_exit_timeout",
        "exit_barrier_timeout",
        "exit_code_map",
        "final_codes",
        "exclude_node_codes",
        "max_same_failures",
        "max_restarts_without_progress",
        "preempt_signals",
        "preempt_grace",
        "preempt_notice",
        "preempt_exit_code",
        "on_sigterm",
        "hang_timeout",
        "hang_action",
        "step_pattern",
        "preflight_cmd",
        "preflight_timeout",
        "notify_cmd",
        "status_addr",
        "event_log",
        "report",
        "event_log_handler",
        "config",
        "log_format",
        "log_level",
    )
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from typing import Optional, TypedDict, Union

    class Flags(TypedDict, total=False):
        """The flags; None leaves one out."""

        nnodes: Optional[Union[int, str]]
        r"""Number of nodes. MIN:MAX lets nodes join, leave and fail while the job runs. More than
        one node needs --rdzv-endpoint or a scheduler that provides it. Default: the scheduler's
        value, or 1:1 without a scheduler."""
        nproc_per_node: Optional[Union[int, str]]
        r"""Workers on this node: a number, gpu (one per GPU of NVIDIA or AMD), xpu (one per GPU of
        Intel), cpu (one per CPU that this process may use), or auto (one per GPU if there is one
        that is not integrated, else cpu)."""
        nnodes_multiple: Optional[int]
        r"""Each round has the largest multiple of N among the nodes that have joined; the others
        are spares. It narrows the range of --nnodes."""
        world_size_multiple: Optional[int]
        r"""Like --nnodes-multiple, for the number of workers on all nodes. All nodes must have the
        same --nproc-per-node, or values that lead to the same multiple of nodes."""
        role: Optional[str]
        r"""Role name of the workers: it is used for ROLE_NAME, for metrics and for the prefix of
        teed lines."""
        node_rank: Optional[int]
        r"""Rank of this node. With other backends than static it only orders the nodes. Default:
        the scheduler's value, or 0 without a scheduler."""
        virtual_local_rank: Optional[bool]
        r"""Give every worker LOCAL_RANK=0 and only its own device in CUDA_VISIBLE_DEVICES, or in
        ZE_AFFINITY_MASK for Intel."""
        numa_binding: Optional[str]
        r"""Bind each worker to the CPUs near its GPU: node, socket, exclusive or core-complex."""
        standalone: Optional[bool]
        r"""Run on this node alone: c10d on a free port with a fresh run id. Schedulers,
        --rdzv-backend, --rdzv-endpoint, --rdzv-id, --master-addr and --master-port are ignored."""
        rdzv_backend: Optional[str]
        r"""Rendezvous backend: c10d (a store on one of the nodes, or elasticrun store), etcd
        (version 3) or static (fixed ranks and master address). Default: c10d; static for several
        nodes if --node-rank, --master-addr or --master-port is given."""
        rdzv_endpoint: Optional[str]
        r"""Where the nodes meet, the same on all nodes. For c10d: the address of the store, port
        29400 by default, or local for several agents of yours on this machine, which need no port.
        For etcd: one or more members, separated by commas, port 2379 by default. Default: a free
        port on one node; on several nodes the scheduler's value, or MASTER_ADDR; with static the
        master address."""
        rdzv_id: Optional[str]
        r"""Run id of the job, the same on all nodes. Default: a random id on one node; on several
        nodes the scheduler's value, or "none", which etcd refuses; with --rdzv-endpoint=local one
        made of the command."""
        launch_id: Optional[str]
        r"""Identifies this launch: the same on all its agents, also on restarted ones, and
        different for every other launch. It tells a late agent of a finished run from a new run
        with the same run id. Default: from a Slurm step or an mpirun job, else none."""
        rdzv_conf: Optional[Union[str, Mapping[str, object]]]
        r"""More options of the rendezvous backend; docs/flags.md lists them."""
        rdzv_secret_file: Optional[Union[str, os.PathLike[str]]]
        r"""File with a secret that all agents of the job and its store must share. PET_RDZV_SECRET
        can hold the secret itself. elasticrun secret > FILE makes one."""
        require_auth: Optional[bool]
        r"""Refuse a job of several nodes whose store would serve everybody who can reach it: c10d
        and static need a secret, etcd a user or a client certificate."""
        master_addr: Optional[str]
        r"""MASTER_ADDR: where the workers' store listens, with static, or on one node with the
        default backend. Default: 127.0.0.1."""
        master_port: Optional[int]
        r"""MASTER_PORT, for the same cases as --master-addr; 0 takes a free port. Default: a free
        port on one node, else 29500."""
        local_addr: Optional[str]
        r"""Address at which other nodes reach this node."""
        worker_store_port: Optional[Union[int, str]]
        r"""Port of the workers' store (MASTER_PORT), or a range of which the first free port is
        taken. Use it if a firewall lets only these ports through; each agent of a machine needs
        one. Default: any free port. No effect with static and on one node, where --master-port
        applies."""
        store_users: Optional[Union[int, str]]
        r"""Further users, by name or number, whose processes may use a store that only this machine
        can reach: the workers' store on one node, and stores at a loopback address. any serves
        every user. Default: only yours and root's processes (on Linux)."""
        module: Optional[bool]
        r"""SCRIPT is a Python module: run it as python -m does."""
        no_python: Optional[bool]
        r"""SCRIPT is a program: run it without Python."""
        run_path: Optional[bool]
        r"""Require an absolute path for SCRIPT, and run it like any other script. Overrides
        --no-python and --module."""
        use_env: Optional[bool]
        r"""Accepted for the sake of torch.distributed.launch, and always on: each worker has its
        local rank in LOCAL_RANK and gets no --local-rank argument."""
        start_method: Optional[str]
        r"""Accepted for torchrun's sake (spawn, fork, forkserver) and ignored: every worker is a
        program of its own."""
        log_dir: Optional[Union[str, os.PathLike[str]]]
        r"""Folder for log and error files; each run gets a subfolder. /dev/null writes none.
        Default: a new folder in the temporary directory."""
        redirects: Optional[Union[int, str]]
        r"""Write the workers' output to files instead of the console: 0 none, 1 stdout, 2 stderr, 3
        both. A map sets it by local rank: 0:3,1:2, or with a range 0-7:3. A g selects global ranks:
        g0:3,g8-15:1."""
        tee: Optional[Union[int, str]]
        r"""Write the workers' output to files and, with a prefix, to the console; values as for
        --redirects."""
        local_ranks_filter: Optional[Union[int, str]]
        r"""Show only these local ranks on the console, such as 0,4-7; with a g, global ranks (g0).
        Files are not affected."""
        duplicate_stdout_filters: Optional[str]
        r"""Also copy teed stdout lines that contain one of these texts to filtered_stdout.log.
        Write ,, for a comma."""
        duplicate_stderr_filters: Optional[str]
        r"""Like --duplicate-stdout-filters, for stderr and filtered_stderr.log."""
        log_line_prefix_template: Optional[str]
        r"""Prefix of teed lines on the console. ${role_name}, ${local_rank}, ${rank}, ${node_rank},
        ${hostname} and ${time} are replaced. Default: [${role_name}${local_rank}]:."""
        log_max_size: Optional[Union[int, str]]
        r"""Start a new log file, at the end of a line, when a file reaches this size, such as
        100MiB. stdout.log is the current file and stdout.log.1 the oldest. Redirected output then
        passes through the launcher. Default: one file."""
        log_max_files: Optional[int]
        r"""With --log-max-size, keep the N newest files of a stream, the current one included. 0
        keeps all."""
        logs_specs: Optional[str]
        r"""Refused, because it names a Python class. Use --log-dir, --redirects and --tee."""
        max_restarts: Optional[int]
        r"""How often the workers of all nodes are restarted after a failure before the job fails.
        Losing a node does not count. A program that cannot be executed is not restarted."""
        restart_window: Optional[Union[float, str]]
        r"""Count only the restarts of the last SECONDS against --max-restarts. 0 counts all."""
        max_node_losses: Optional[int]
        r"""Exclude a node that was lost N times in 10 minutes, as long as the job can run without
        it. 0 never excludes."""
        rejoin_timeout: Optional[Union[float, str]]
        r"""How long a node may take to stop its workers after a membership change; then the job
        goes on without the node. Default: --restart-grace plus 10, plus --preflight-timeout if
        there is a --preflight-cmd, and at least keep_alive_interval times keep_alive_max_attempt."""
        grow: Optional[str]
        r"""When a running job admits new nodes, which restarts its workers: now, next-restart (at
        the next restart for any reason) or never."""
        min_uptime: Optional[Union[float, str]]
        r"""If workers fail sooner than this after their start, pause before each further restart;
        the pauses grow. 0 never pauses."""
        monitor_interval: Optional[Union[float, str]]
        r"""Accepted for torchrun's sake and ignored: the launcher notices a worker's exit at once."""
        signals_to_handle: Optional[str]
        r"""On these signals the launcher forwards the signal to the workers, waits for them and
        exits, unless --on-sigterm says otherwise."""
        shutdown_timeout: Optional[Union[float, str]]
        r"""How long workers may take to stop before SIGKILL when the launcher is told to stop."""
        restart_grace: Optional[Union[float, str]]
        r"""Like --shutdown-timeout, when workers are stopped for a restart after a failure or a
        membership change. Default: --shutdown-timeout."""
        error_exit_timeout: Optional[Union[float, str]]
        r"""How long a worker that has written its error file may take to exit before it counts as
        failed. 0 waits forever."""
        exit_barrier_timeout: Optional[Union[float, str]]
        r"""How long a node whose workers have all exited with 0 waits for the others; then it ends
        with success. A node that hosts a store stays until the job has ended. If the time is given,
        it leaves after at least the keep-alive time; the nodes that still need the store then end
        with code 75."""
        exit_code_map: Optional[Union[str, Mapping[str, object]]]
        r"""Replace the launcher's exit code, for a scheduler. FROM is a code or a reason:
        137=75,rendezvous=99."""
        final_codes: Optional[str]
        r"""Exit codes of the root cause that end the job without a restart, such as 3,10-12. Signal
        n is 128+n."""
        exclude_node_codes: Optional[str]
        r"""Exit codes of the root cause that say that its node is at fault: it is excluded, as long
        as the job can run without it. The restart is charged."""
        max_same_failures: Optional[int]
        r"""End the job once the same failure of the same rank has happened N times in a row,
        without progress in between. 0 only reports it."""
        max_restarts_without_progress: Optional[int]
        r"""End the job once N restarts in a row have failed at a step that is not beyond that of
        the failure before. Steps come from --step-pattern or a heartbeat; failures without one do
        not count. 0 never ends it."""
        preempt_signals: Optional[str]
        r"""When any node's launcher gets one of these signals, such as USR1, the workers of all
        nodes get it and save, and the job ends with --preempt-exit-code."""
        preempt_grace: Optional[Union[float, str]]
        r"""How long the workers of a preempted job may take to save and exit by themselves, before
        SIGTERM and --shutdown-timeout. It is shorter if --preempt-notice or Slurm says that the
        node is taken away before."""
        preempt_notice: Optional[Union[float, str]]
        r"""How long after the signal the scheduler takes the node away: Kubernetes'
        terminationGracePeriodSeconds. Default: 30 in Kubernetes, the end of the job in Slurm, else
        unknown."""
        preempt_exit_code: Optional[int]
        r"""The exit code of a preempted job, on all nodes. It means: run the job again. If all
        workers had written finished into $ELASTICRUN_CONTROL_FILE, the job has succeeded."""
        on_sigterm: Optional[str]
        r"""What SIGTERM does: leave stops this node, which ends with 143, and the others go on if
        enough are left; preempt makes it one of --preempt-signals."""
        hang_timeout: Optional[Union[int, str]]
        r"""Suspect a hang when no worker of the job has shown progress for this long, as seen from
        outside. auto waits for 60 seconds or 5 times the longest pause of the job so far, whichever
        is longer, and only once the job has shown a steady rhythm. 0 or off never looks."""
        hang_action: Optional[str]
        r"""What follows a suspected hang: report prints which rank it is and the stacks of all
        ranks; restart and stop do so too, look a second time, and then restart the workers, which
        is charged as a failure, or end the job with code 77. With auto that takes 5 minutes at
        least."""
        step_pattern: Optional[str]
        r"""A regular expression (RE2) for the lines of workers that name the step of the training.
        Its first group, or the whole match, is a number, as in 'step (\d+)'. A new step counts as
        progress."""
        dry_run: Optional[bool]
        r"""Print what the launch would do, as elasticrun explain does, and start nothing. Exit code
        2 or 73 means that the launch would be refused."""
        preflight: Optional[bool]
        r"""Check this machine, as elasticrun doctor does but without importing torch, before the
        node joins the job. If a check fails, the node does not join, and the exit code is 72."""
        preflight_cmd: Optional[str]
        r"""Your own check, run by sh -c before the node joins, and again after a failure of one of
        its workers. If it fails, the node does not join, or leaves, with exit code 72."""
        preflight_timeout: Optional[Union[float, str]]
        r"""How long --preflight-cmd may take before it counts as failed."""
        notify_cmd: Optional[str]
        r"""Run by sh -c with one JSON document on its stdin when the job has ended, was restarted,
        has lost a node, hangs or is preempted. The node of rank 0 runs it. It may take 10 seconds,
        and the job does not wait for it."""
        status_addr: Optional[str]
        r"""Serve this node's status over HTTP: /healthz, /readyz, /status and /metrics. :PORT
        serves this machine only; give an address or 0.0.0.0 to serve others. Port 0 takes a free
        port. Default: not served."""
        event_log: Optional[Union[str, os.PathLike[str]]]
        r"""Append the job's events to FILE as JSON lines. ${hostname} and ${run_id} are replaced,
        for nodes that share a disk."""
        report: Optional[Union[str, os.PathLike[str]]]
        r"""Write how the job ended to FILE as JSON. ${hostname}, ${node_rank} and ${run_id} are
        replaced, for nodes that share a disk."""
        event_log_handler: Optional[str]
        r"""Where torch's events are written: null (nowhere) or console. dynamic_rendezvous means
        null."""
        config: Optional[Union[str, os.PathLike[str]]]
        r"""Config file. Default: elasticrun.yaml in the working directory, else
        elasticrun/elasticrun.yaml in the user's config folder, if it exists."""
        log_format: Optional[str]
        r"""Format of elasticrun's own log on stderr: console, json, or auto, which is console with
        colors on a terminal."""
        log_level: Optional[str]
        r"""Level of elasticrun's own log: trace, debug, info, warning, error or critical."""
