"""A Hugging Face hub on this machine: the calls that huggingface_hub makes to create, commit, list and fetch.

What it knows of the real one: status codes, the headers that the client reads, LFS for weights, one commit at a time.
"""

import base64
import hashlib
import json
import re
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.parse import unquote, urlsplit

import yaml

WRITER, READER = "hf_writer", "hf_reader"  # tokens
NOTHING = "0" * 40


@dataclass
class Repository:
    """`branches`: name → commit; `commits`: commit → path → content."""

    private: bool
    branches: dict = field(default_factory=lambda: {"main": NOTHING})
    commits: dict = field(default_factory=lambda: {NOTHING: {}})

    def commit_of(self, revision):
        return self.branches.get(revision, revision if revision in self.commits else None)

    def files(self, revision="main"):
        return self.commits[self.commit_of(revision)]


class FakeHub:
    """`log`: method and path of each call; `broken`: paths in a repository that are not given out."""

    def __init__(self):
        self.repositories, self.uploaded, self.log, self.broken, self.lock = {}, {}, [], set(), Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def fetched(self):
        """Names of the files that were given out since the last time."""
        names = [path.rpartition("/")[2] for method, path in self.log if method == "GET" and "/resolve/" in path]
        self.log.clear()
        return names

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Refused(Exception):
    def __init__(self, status, code=None, message="no", **body):
        self.status, self.body = status, {"error": message, **body}
        self.headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, *_):
        pass

    def do_GET(self):
        self._answer("GET")

    def do_HEAD(self):
        self._answer("HEAD")

    def do_POST(self):
        self._answer("POST")

    def do_PUT(self):
        self._answer("PUT")

    def _answer(self, method):
        path = unquote(urlsplit(self.path).path)
        self.hub.log.append((method, path))
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            for routed, pattern, call in _ROUTES:
                match = re.fullmatch(pattern, path)
                if match and method in routed:
                    with self.hub.lock:
                        call(self, **match.groupdict())
                    return
            raise Refused(404, message=f"{method} {path} is nothing that this hub knows")
        except Refused as error:
            self._send(
                error.status, json.dumps(error.body).encode(), {"Content-Type": "application/json", **error.headers}
            )

    def _send(self, status, content, headers):
        self.send_response(status)
        for name, value in {"Content-Length": len(content), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _json(self, value):
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    @property
    def _token(self):
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def _may_write(self):
        if self._token != WRITER:
            raise Refused(403 if self._token == READER else 401, message="You don't have the rights to do this")

    def _repository(self, name):
        found = self.hub.repositories.get(name)
        if found is None or (found.private and self._token not in (WRITER, READER)):
            raise Refused(404 if self._token else 401, "RepoNotFound", "Repository not found")
        return found

    def _commit(self, repository, revision):
        commit = repository.commit_of(revision)
        if commit is None:
            raise Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit

    def create(self):
        self._may_write()
        asked = json.loads(self.body)
        name = f"{asked['organization']}/{asked['name']}"
        url = f"{self.hub.address}/{name}"
        if name in self.hub.repositories:
            raise Refused(409, message="You already created this model repo", url=url)
        self.hub.repositories[name] = Repository(asked.get("visibility") == "private")
        self._json({"url": url, "name": name})

    def branch(self, name, branch):
        self._may_write()
        repository = self._repository(name)
        if branch in repository.branches:
            raise Refused(409, message="Reference already exists")
        repository.branches[branch] = repository.branches["main"]
        self._json({})

    def validate_yaml(self):
        head = json.loads(self.body)["content"].split("---\n")[1]
        stated = yaml.safe_load(head)
        errors = [] if stated.get("library_name") else [{"message": "no library_name"}]
        self._json({"errors": errors, "warnings": []})

    def preupload(self, name, revision):
        self._may_write()
        self._commit(self._repository(name), revision)
        modes = {
            one["path"]: "lfs" if one["path"].endswith(".safetensors") else "regular"
            for one in json.loads(self.body)["files"]
        }
        self._json(
            {"files": [{"path": path, "uploadMode": mode, "shouldIgnore": False} for path, mode in modes.items()]}
        )

    def lfs_batch(self, name):
        self._may_write()
        objects = []
        for one in json.loads(self.body)["objects"]:
            upload = {"upload": {"href": f"{self.hub.address}/lfs/{one['oid']}"}}
            objects.append(one | ({} if one["oid"] in self.hub.uploaded else {"actions": upload}))
        self._json({"transfer": "basic", "objects": objects})

    def put(self, oid):
        if hashlib.sha256(self.body).hexdigest() != oid:
            raise Refused(400, message="the content has another sum")
        self.hub.uploaded[oid] = self.body
        self._json({})

    def commit(self, name, revision):
        self._may_write()
        repository = self._repository(name)
        files = dict(repository.commits[self._commit(repository, revision)])
        for line in self.body.splitlines():
            entry = json.loads(line)
            key, value = entry["key"], entry["value"]
            if key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                files[value["path"]] = self.hub.uploaded[value["oid"]]
            elif key == "deletedFile":
                del files[value["path"]]
        commit = hashlib.sha1(self.body + str(len(repository.commits)).encode()).hexdigest()
        repository.commits[commit] = files
        repository.branches[revision] = commit
        self._json({"commitUrl": f"{self.hub.address}/{name}/commit/{commit}", "commitOid": commit})

    def info(self, name, revision="main"):
        repository = self._repository(name)
        commit = self._commit(repository, revision or "main")
        siblings = [{"rfilename": path} for path in repository.commits[commit]]
        self._json(
            {
                "id": name,
                "modelId": name,
                "sha": commit,
                "private": repository.private,
                "tags": [],
                "siblings": siblings,
            }
        )

    def tree(self, name, revision):
        repository = self._repository(name)
        files = repository.commits[self._commit(repository, revision)]
        self._json([{"type": "file", "path": path, "size": len(one), "oid": _blob(one)} for path, one in files.items()])

    def resolve(self, name, revision, path):
        repository = self._repository(name)
        commit = self._commit(repository, revision)
        content = repository.commits[commit].get(path)
        if content is None:
            raise Refused(404, "EntryNotFound", "Entry not found")
        if path in self.hub.broken and self.command == "GET":
            raise Refused(403, message="not now")
        self._send(200, content, {"ETag": f'"{_blob(content)}"', "X-Repo-Commit": commit})


def _blob(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


_NAME = r"(?P<name>[\w.-]+/[\w.-]+)"
_ROUTES = [
    ("POST", "/api/repos/create", _Handler.create),
    ("POST", "/api/validate-yaml", _Handler.validate_yaml),
    ("POST", rf"/api/models/{_NAME}/branch/(?P<branch>.+)", _Handler.branch),
    ("POST", rf"/api/models/{_NAME}/preupload/(?P<revision>.+)", _Handler.preupload),
    ("POST", rf"/api/models/{_NAME}/commit/(?P<revision>.+)", _Handler.commit),
    ("POST", rf"/{_NAME}\.git/info/lfs/objects/batch", _Handler.lfs_batch),
    ("PUT", r"/lfs/(?P<oid>\w+)", _Handler.put),
    ("GET", rf"/api/models/{_NAME}(/revision/(?P<revision>.+))?", _Handler.info),
    ("GET", rf"/api/models/{_NAME}/tree/(?P<revision>[^/]+)", _Handler.tree),
    (("GET", "HEAD"), rf"/{_NAME}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", _Handler.resolve),
]
