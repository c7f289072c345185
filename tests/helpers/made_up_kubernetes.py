"""A made-up Kubernetes: an API server that takes jobs, and runs their pods as processes here.

Bodies of requests are held against Kubernetes' own schemas and against the rules of its API server
that schemas cannot state; what these refuse is answered as the server answers. What is left out are
nodes, images, limits and devices. A pod's image is this Python environment.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate

VERSION = "1.32"  # of the schemas
NAMESPACE = "genomics"  # the only one
IMAGE = "registry.example.org/fmwave-workflow:1"  # the same

# The plugin has each pod install storage plugins from PyPI, which tests do not reach.
_PIP = "#!/bin/sh\n"
_KUBECONFIG = """apiVersion: v1
kind: Config
current-context: made-up
clusters: [{{name: made-up, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: made-up, user: {{token: secret}}}}]
contexts: [{{name: made-up, context: {{cluster: made-up, user: made-up}}}}]
"""
_UNITS = {"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


class RefusedError(Exception):
    """The status of an HTTP error, and its message."""


def quantity(text: str) -> float:
    """Return the value of a quantity such as 500m or 64000M."""
    found = re.fullmatch(r"([0-9]+)([a-zA-Z]*)", text)
    if found is None or found[2] not in _UNITS:
        raise RefusedError(422, f"quantities must match the regular expression: {text!r}")
    return int(found[1]) * _UNITS[found[2]]


def check_resources(resources: dict[str, dict[str, str]]) -> None:
    """Refuse what the API server refuses: validation.ValidateContainerResourceRequirements."""
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for name, text in requests.items():
        if name in limits and quantity(text) > quantity(limits[name]):
            raise RefusedError(422, f"{name}: must be less than or equal to {name} limit")
    for name in {*limits, *requests}:
        if "/" in name:  # an extended resource, such as nvidia.com/gpu
            if limits.get(name) is None:
                raise RefusedError(
                    422, f"{name}: Limit must be set for non overcommitable resources"
                )
            if requests.get(name, limits[name]) != limits[name] or not limits[name].isdecimal():
                raise RefusedError(422, f"{name}: must be equal to the limit, and an integer")


class Pod:
    """A pod of a job, which is one container that is not restarted."""

    def __init__(self, job: dict[str, Any], cluster: MadeUpKubernetes) -> None:
        self.job = job
        self.name = f"{job['metadata']['name']}-abcde"
        [container] = job["spec"]["template"]["spec"]["containers"]
        self.image = container["image"]
        self.log = cluster.place / f"{self.name}.log"
        # An image that cannot be pulled leaves a pod waiting for ever.
        self.process = self.start(container, cluster) if self.image == IMAGE else None

    def start(self, container: dict[str, Any], cluster: MadeUpKubernetes) -> subprocess.Popen:
        """Run the container's command in an empty folder."""
        workdir = cluster.place / self.name
        workdir.mkdir()
        hidden = ("KUBECONFIG", "SNAKEMAKE_")  # what comes to a pod comes by secrets
        env = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        folders = [cluster.place / "bin", cluster.place / "image", Path(sys.executable).parent]
        env["PATH"] = os.pathsep.join([*map(str, folders), env["PATH"]])
        for variable in container.get("env") or []:
            source = variable["valueFrom"]["secretKeyRef"]
            value = cluster.secrets[source["name"]]["data"][source["key"]]
            env[variable["name"]] = base64.b64decode(value).decode()
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [*container["command"], *container["args"]],
                cwd=workdir, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def exit_code(self) -> int | None:
        """Return the status of the container; None until it has ended."""
        code = None if self.process is None else self.process.poll()
        return code if code is None or code >= 0 else 128 - code

    def status(self) -> dict[str, Any]:
        """Return what a list of pods tells of this one."""
        code = self.exit_code()
        if self.process is None:
            phase, state = "Pending", {"waiting": {"reason": "ImagePullBackOff"}}
        elif code is None:
            phase, state = "Running", {"running": {}}
        else:
            phase = "Failed" if code else "Succeeded"
            state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
        of_container = {
            "name": "snakemake", "image": self.image, "imageID": "", "ready": code is None,
            "restartCount": 0, "state": state, "lastState": {},
        }  # fmt: skip
        return {
            "metadata": {"name": self.name},
            "status": {"phase": phase, "containerStatuses": [of_container]},
        }

    def job_status(self) -> dict[str, Any]:
        code = self.exit_code()
        count = "active" if code is None else "failed" if code else "succeeded"
        return {**self.job, "status": {count: 1}}

    def stop(self) -> None:
        if self.process is not None:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class MadeUpKubernetes:
    """The cluster: a context in which its server runs, and after which its pods are gone.

    What lies in ``place / "bin"`` comes first on the path of pods.
    """

    def __init__(self, place: Path) -> None:
        (place / "image").mkdir(parents=True)
        (place / "image" / "pip").write_text(_PIP)
        (place / "image" / "pip").chmod(0o755)
        self.place = place
        self.jobs: list[dict[str, Any]] = []  # as they were submitted
        self.secrets: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, Pod] = {}  # of jobs that are not deleted
        self.watched: set[str] = set()  # jobs whose status was asked for
        self.tells_status = threading.Event()  # cleared: such a request waits for its answer
        self.tells_status.set()
        self.answered = 0.0  # when the last request was, by the monotonic clock
        self.lock = threading.Lock()

    def __enter__(self) -> MadeUpKubernetes:
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                url = urlsplit(self.path)
                query = {key: values[0] for key, values in parse_qs(url.query).items()}
                try:
                    with cluster.lock:
                        status, told = 200, cluster.request(self.command, url.path, query, body)
                except RefusedError as error:
                    status, message = error.args
                    told = {"kind": "Status", "status": "Failure", "message": message}
                if url.path.endswith("/status"):
                    cluster.tells_status.wait(60)
                data = told.encode() if isinstance(told, str) else json.dumps(told).encode()
                kind = "text/plain" if isinstance(told, str) else "application/json"
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                cluster.answered = time.monotonic()

            do_GET = do_POST = do_DELETE = answer  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        self.kubeconfig = self.place / "kubeconfig"
        self.kubeconfig.write_text(_KUBECONFIG.format(port=self.server.server_port))
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
        for pod in self.pods.values():
            pod.stop()

    def request(self, verb: str, path: str, query: dict[str, str], body: Any) -> Any:
        """Return the answer to a request; raise RefusedError for those the API server refuses."""
        found = re.fullmatch(r"/(api/v1|apis/batch/v1)/namespaces/([^/]+)/(\w+)(/.*)?", path)
        if found is None:
            raise RefusedError(404, f"the server could not find the requested resource: {path}")
        version, namespace, kind, rest = found[1].partition("/")[2], *found.groups()[1:]
        if namespace != NAMESPACE:
            raise RefusedError(404, f'namespaces "{namespace}" not found')
        name = (rest or "").strip("/").partition("/")[0]
        match verb, kind, (rest or "").removeprefix(f"/{name}"):
            case "POST", "secrets", "":
                self.validate({"apiVersion": version, "kind": "Secret", **body})
                self.secrets[body["metadata"]["name"]] = body
                return body
            case "DELETE", "secrets", "":
                return self.secrets.pop(name)
            case "POST", "jobs", "":
                self.jobs.append(body)
                self.validate({"apiVersion": version, "kind": "Job", **body})
                for container in body["spec"]["template"]["spec"]["containers"]:
                    check_resources(container["resources"])
                self.pods[body["metadata"]["name"]] = Pod(body, self)
                return body
            case "GET", "jobs", "/status":
                self.watched.add(name)
                return self.pod_of(name).job_status()
            case "DELETE", "jobs", "":
                self.pod_of(name).stop()
                del self.pods[name]
                return {"kind": "Status", "status": "Success"}
            case "GET", "pods", "":
                job = query["labelSelector"].removeprefix("job-name=")
                self.watched.add(job)
                pods = [self.pods[job].status()] if job in self.pods else []
                return {"kind": "PodList", "items": pods}
            case "GET", "pods", "/log":
                if query.get("previous", "").lower() == "true":  # it was never restarted
                    missing = f'"{query["container"]}" in pod "{name}" not found'
                    raise RefusedError(400, f"previous terminated container {missing}")
                return self.pod_of(name.removesuffix("-abcde")).log.read_text()
            case "DELETE", "pods", "":
                return self.pod_of(name.removesuffix("-abcde")).status()
        raise RefusedError(405, f"{verb} {path} is nothing that this cluster knows")

    def pod_of(self, job: str) -> Pod:
        if job not in self.pods:
            raise RefusedError(404, f'jobs.batch "{job}" not found')
        return self.pods[job]

    def validate(self, body: dict[str, Any]) -> None:
        """Refuse unknown fields and wrong types, as kubectl --validate=strict does."""
        try:
            kubernetes_validate.validate(body, VERSION, strict=True)
        except kubernetes_validate.ValidationError as error:
            raise RefusedError(422, f"{list(error.path)}: {error.message}") from error
