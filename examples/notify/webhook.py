"""Posts a notice of --notify-cmd to a webhook, as those of Slack and Mattermost take it.

    export WEBHOOK_URL=https://hooks.example.com/services/...
    elasticrun --notify-cmd="python3 $PWD/webhook.py" train.py

docs/notices.md describes the notice, which comes on stdin.
"""

import json
import os
import sys
import urllib.request

notice = json.load(sys.stdin)
about = {
    "ended": "ended: {reason}, exit code {exit_code}, {restarts} restarts",
    "restart": "was restarted ({restarts} of {max_restarts})",
    "repeated_failure": "has failed {same_failures} times in a row for the same reason",
    "budget_spent": "was restarted, and no restart is left ({max_restarts})",
    "node_lost": "has lost {lost_nodes} node(s) and goes on with {nodes}",
    "hang": "hangs: {summary}",
    "preempted": "saves and ends: {why}",
}
text = about.get(notice["notice"], notice["notice"]).format_map({**dict.fromkeys(
    ("reason", "exit_code", "restarts", "max_restarts", "same_failures", "lost_nodes", "nodes", "summary", "why"), "?"), **notice})
used = notice.get("goodput") if notice["notice"] == "ended" else None
if used:
    seconds = sum(value for value in used.values() if not isinstance(value, bool))
    text += f", {used['running'] / seconds:.0%} {'training' if used['steps'] else 'running'}"
if cause := notice.get("root_cause"):
    text += f"; rank {cause['rank']} on {cause['host']}: {cause['summary']}"
if notice.get("others_unknown"):
    text += f" on {notice['host']}; how the other nodes end is not known"
body = json.dumps({"text": f"{notice.get('name', 'job')} ({notice['run_id']}) {text}"}).encode()
request = urllib.request.Request(os.environ["WEBHOOK_URL"], body, {"Content-Type": "application/json"})
urllib.request.urlopen(request, timeout=8).close()
