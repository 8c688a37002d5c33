"""External reads of code that no name covers: files, programs, network, clock, random state, environment.

What is known of the standard library and of widely used ones is in tables, by the names their documentation uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Read(NamedTuple):
    """One place that reads something from outside."""

    where: str
    """File and line, ``features.py:12``."""
    code: str
    """The function called, under its library's name."""
    kind: str
    """One of the keys of `UNSEEN`."""
    of_input: bool = False
    """Whether it reads something handed to the function, so that a `Path` in the input names it."""


UNSEEN = {
    "file": "what is in the file",
    "program": "what the other program does",
    "network": "what the network answers",
    "clock": "the time",
    "random": "the state of the random generator",
    "environment": "the environment, where it is read without a constant name",
    "model": "the model that is fetched",
    "source": "docstrings, comments, annotations of functions, and which subclasses there are",
}
"""Explanations of external reads, by kind."""

_CURES = {
    "file": "a `Path` as input, which counts by the file's content",
    "program": "its result as input",
    "network": "its answer as input",
    "clock": "the time as input",
    "random": "a seed",
    "environment": "a constant name, as in os.environ['X']",
    "model": "a fixed revision in the code",
    "source": "the text as a value that the code reads",
}


def unseen(reads: Iterable[Read]) -> str:
    """A message about reads: their lines, what a name cannot see, and the cures."""
    found = list(dict.fromkeys(reads))
    kinds = list(dict.fromkeys(read.kind for read in found))
    lines = ", ".join(f"{read.code} at {read.where}" for read in found[:8])
    more = f" and {len(found) - 8} more" if len(found) > 8 else ""
    what = ", ".join(UNSEEN[kind] for kind in kinds)
    cures = "; ".join(_CURES[kind] for kind in kinds)
    names = sorted({read.code.rpartition(".")[2] for read in found})
    return (
        f"it reads what its name cannot see ({what}): {lines}{more}; a change there is not noticed. "
        f"Cures: {cures}; or, where the result does not depend on it, .cached(ignoring={names})"
    )


_SEEDED_BY_SYSTEM = {
    "random.SystemRandom",
    "random.seed",
    "numpy.random.seed",
    "torch.seed",
    "torch.random.seed",
}


def is_seeded(read: Read) -> bool:
    """Whether a read is one of a generator that the seed of a forward seeds: the global ones."""
    own = read.code in _SEEDED_BY_ARGUMENT or read.code in _SEEDED_BY_SYSTEM
    return read.kind == "random" and family(read.code) in ("random", "numpy", "torch") and not own


def read_of(names: Iterable[str], empty: bool, seeded: set[str]) -> tuple[str, str] | None:
    """The name and kind of an external read by these names; None if it is none.

    `empty` says that it is called without an argument. What seeds a generator adds the library's name to `seeded`.
    """
    for name in names:
        if name in _SEEDS and not empty:
            seeded.add(_SEEDS[name])
            return None
        kind = _BY_NAME.get(name) or _by_prefix(name)
        if name in _SEEDED_BY_ARGUMENT:
            kind = "random" if empty else None
        if kind is not None:
            return name, kind
    return None


def family(code: str) -> str:
    """The library whose seed makes a random call repeat."""
    return code.partition(".")[0]


def _by_prefix(name: str) -> str | None:
    head, _, last = name.rpartition(".")
    for prefix, kind in _PREFIXES:
        if name.startswith(prefix) and last not in _HARMLESS:
            return kind
    return "model" if last == "from_pretrained" and head else None


METHODS = {
    "read_text": "file",
    "read_bytes": "file",
    "open": "file",
    "iterdir": "file",
    "glob": "file",
    "rglob": "file",
    "stat": "file",
    "lstat": "file",
    "exists": "file",
    "is_file": "file",
    "is_dir": "file",
    "readlink": "file",
    "from_pretrained": "model",
    "__doc__": "source",
    "__annotations__": "source",
    "__subclasses__": "source",
}
"""The methods that read, whatever they are called on."""

OF_SOURCE = {name for name, kind in METHODS.items() if kind == "source"}


def _named(kind: str, names: str) -> Iterator[tuple[str, str]]:
    for line in names.split():
        module, _, several = line.partition(":")
        for name in several.split(","):
            yield f"{module}.{name}", kind


_BY_NAME: dict[str, str] = {
    **dict(
        _named(
            "file",
            """
            builtins:open io:open,open_code,FileIO _io:open,open_code,FileIO
            os:open,listdir,scandir,walk,fwalk,stat,lstat,readlink,getcwd posix:open,listdir,scandir,stat,lstat,getcwd
            os.path:exists,lexists,getmtime,getctime,getsize,isfile,isdir posixpath:exists,lexists,getmtime,isfile
            genericpath:exists,getmtime,getctime,getsize,isfile,isdir glob:glob,iglob linecache:getline,getlines
            fileinput:input,FileInput sqlite3:connect shelve:open dbm:open mmap:mmap
            gzip:open,GzipFile bz2:open,BZ2File lzma:open,LZMAFile tarfile:open,TarFile zipfile:ZipFile codecs:open
            pathlib.Path:read_text,read_bytes,open,iterdir,glob,rglob,cwd
            importlib.resources:read_text,read_binary,open_text,open_binary,files pkgutil:get_data
            numpy:load,loadtxt,genfromtxt,fromfile,memmap torch:load,from_file joblib:load
            torchvision.io:read_image torchaudio:load,info soundfile:read librosa:load
            h5py:File PIL.Image:open cv2:imread,VideoCapture imageio:imread,get_reader skimage.io:imread
            safetensors.torch:load_file safetensors.numpy:load_file safetensors:safe_open
            pyarrow.parquet:read_table,ParquetFile pyarrow.feather:read_table xarray:open_dataset,open_zarr zarr:open
            scipy.io:loadmat,mmread lmdb:open netCDF4:Dataset rasterio:open geopandas:read_file tifffile:imread
            """,
        )
    ),
    **dict(
        _named(
            "program",
            """
            os:system,popen,spawnl,spawnv posix:system
            subprocess:run,Popen,call,check_call,check_output,getoutput,getstatusoutput
            """,
        )
    ),
    **dict(
        _named(
            "network",
            """
            urllib.request:urlopen,urlretrieve,build_opener socket:socket,create_connection,getaddrinfo
            http.client:HTTPConnection,HTTPSConnection ftplib:FTP smtplib:SMTP boto3:client,resource
            aiohttp:ClientSession,request datasets:load_dataset torch.hub:load,load_state_dict_from_url
            huggingface_hub:hf_hub_download,snapshot_download
            """,
        )
    ),
    **dict(
        _named(
            "clock",
            """
            time:time,time_ns,monotonic,monotonic_ns,perf_counter,perf_counter_ns,process_time,process_time_ns
            time:thread_time,thread_time_ns,localtime,gmtime,ctime,asctime,strftime,clock_gettime,clock_gettime_ns
            datetime.datetime:now,utcnow,today datetime.date:today
            """,
        )
    ),
    **dict(
        _named(
            "random",
            """
            os:urandom,getrandom posix:urandom,getrandom uuid:uuid1,uuid4 tempfile:mktemp,mkdtemp,mkstemp
            torch:rand,randn,randint,randperm,rand_like,randn_like,randint_like,normal,bernoulli,multinomial,poisson
            torch:get_rng_state,seed,initial_seed
            torch.nn.functional:dropout,dropout1d,dropout2d,dropout3d,alpha_dropout,feature_alpha_dropout,rrelu
            torch.nn.functional:gumbel_softmax,fractional_max_pool2d,fractional_max_pool3d
            """,
        )
    ),
    **dict(
        _named(
            "source",
            """
            inspect:getsource,getsourcelines,getdoc,getcomments,signature,get_annotations,getfullargspec
            typing:get_type_hints
            """,
        )
    ),
    **dict(
        _named(
            "environment",
            """
            builtins:input sys:argv,stdin,path,flags os:environb,getenvb,getlogin,getpid,cpu_count,uname,getenv
            posix:getpid,cpu_count,uname,getlogin platform:node,uname,system,machine,platform,release,processor
            socket:gethostname,gethostbyname getpass:getuser,getpass
            """,
        )
    ),
}

_SEEDED_BY_ARGUMENT = {
    "random.Random",
    "numpy.random.default_rng",
    "numpy.random.RandomState",
    "numpy.random.SeedSequence",
    "numpy.random.Generator",
    "numpy.random.PCG64",
    "numpy.random.MT19937",
    "numpy.random.Philox",
    "numpy.random.SFC64",
    "torch.Generator",
}
_SEEDS = {
    "random.seed": "random",
    "numpy.random.seed": "numpy",
    "torch.manual_seed": "torch",
    "torch.random.manual_seed": "torch",
    "torch.set_rng_state": "torch",
    "random.setstate": "random",
    "numpy.random.set_state": "numpy",
}
_PREFIXES = (
    ("random.", "random"),
    ("numpy.random.", "random"),
    ("secrets.", "random"),
    ("pandas.read_", "file"),
    ("polars.read_", "file"),
    ("polars.scan_", "file"),
    ("requests.", "network"),
    ("httpx.", "network"),
    ("urllib3.", "network"),
)
_HARMLESS = {
    *("Generator", "BitGenerator", "RandomState", "Random", "compare_digest", "default_rng", "SeedSequence", "random_"),
    *("HTTPError", "RequestException", "Timeout", "ConnectionError", "Response", "exceptions", "codes"),
    *("PCG64", "MT19937", "Philox", "SFC64", "read_json_", "SystemRandom_"),
}
