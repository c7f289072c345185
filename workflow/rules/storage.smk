# Files in a storage, which Snakemake's plugins read and write.
import math
import os
import re
from functools import cache, wraps

from snakemake.exceptions import WorkflowError
from snakemake_interface_storage_plugins.registry import StoragePluginRegistry

# Whether nodes read and write the same files; else they lie in the default storage, as for Kubernetes.
SHARED_DISK = not workflow.storage_settings.default_storage_provider

# Those that a message names if none takes a URL; any other that is installed is used as well.
STORAGE_PLUGINS = {"s3": "s3", "http": "http", "https": "http", "gs": "gcs", "ftp": "ftp"}


def is_url(path):
    """Whether a path is one that a storage plugin of Snakemake reads."""
    return re.match("[A-Za-z][A-Za-z0-9+.-]*://", path) is not None


def problem_of_url(url):
    """Return what keeps Snakemake from reading a URL; nothing if a storage plugin takes it."""
    try:
        workflow.storage_registry.infer_provider(url)
        return ""
    except WorkflowError as error:
        plugin = STORAGE_PLUGINS.get(url.split("://")[0].lower())
        if plugin is None or StoragePluginRegistry().is_installed(plugin):
            return str(error)
        return f"a storage plugin is missing: pip install snakemake-storage-plugin-{plugin}"


def stored(path):
    """Return Snakemake's object for a URL, or for a file in the default storage."""
    if is_url(path):
        return storage(path).flags["storage_object"]
    in_storage = workflow.modifier.path_modifier.apply_default_storage(path)
    return in_storage.flags["storage_object"]


@cache
def size_in_storage(path):
    """Return the size as the storage tells it; 0 of a file that is yet to be made."""
    file = stored(path)
    return file.size() if file.exists() else 0


def is_folder_in_s3(self):
    """Whether a key is that of a folder.

    The plugin (0.3.6) keeps its first answer, too: before a pod has made the index that is "no",
    and the index then counts as missing.
    """
    self._is_dir = self._is_dir or any(self.get_subkeys())
    return self._is_dir


if workflow.storage_settings.default_storage_provider == "s3":
    workflow.storage_registry.default_storage_provider.get_storage_object_cls().is_dir = (
        is_folder_in_s3
    )


def keep_time(retrieve):
    """Return a plugin's function that fetches a file, changed to give the copy the file's time.

    Snakemake removes the copy when a job fails, and fetches it again for the next attempt. By the
    time of the download `fmwave map --resume` would take the reads for others, and begin anew.
    """

    @wraps(retrieve)
    def retrieve_with_time(self):
        # Asked for first: a file that is replaced during the download is then newer than its copy.
        told = self.mtime()
        retrieve(self)
        copy = self.local_path()
        if not told or copy.is_symlink() or not copy.is_file():
            return  # a web server may tell no time (0); a link is to the file itself
        found = copy.stat()
        # Rounded up, or Snakemake would take the copy for older than the file, and fetch it again.
        # Never later than the download: by a clock that is ahead, inputs would be newer than what
        # is made of them.
        time = math.ceil(told)
        if time < found.st_mtime:
            os.utime(copy, (found.st_atime, time))

    return retrieve_with_time


for plugin in StoragePluginRegistry().plugins.values():
    storage_class = plugin.storage_provider.get_storage_object_cls()
    storage_class.retrieve_object = keep_time(storage_class.retrieve_object)
