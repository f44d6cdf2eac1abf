"""Files that are not read, because their owner has to choose: what they are, and a line that converts them."""

from contextlib import suppress
from pathlib import Path

_HEAD = 132  # bytes at the beginning of a file that differ between formats
_ARRAYS = "numpy.savez('mine.npz', records=records, labels=labels)"
_BY_HEAD = (
    (0, b"\x89HDF\r\n\x1a\n", "hdf5"),
    *((0, b"CDF" + version, "netcdf") for version in (b"\x01", b"\x02", b"\x05")),
    (0, b"SQLite format 3\0", "sqlite"),
    (128, b"DICM", "dicom"),
    (0, b"\x80", "pickle"),
    (0, b"ARROW1", "feather"),
    (0, b"Obj\x01", "avro"),
    (0, b"ORC", "orc"),
    (0, b"<stata_dta>", "stata"),
)
_BY_SUFFIX = {
    **dict.fromkeys((".h5", ".hdf5", ".he5"), "hdf5"),
    **dict.fromkeys((".nc", ".nc4"), "netcdf"),
    **dict.fromkeys((".db", ".sqlite", ".sqlite3"), "sqlite"),
    **dict.fromkeys((".dcm", ".dicom"), "dicom"),
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), "pickle"),
    **dict.fromkeys((".pt", ".pth"), "torch"),
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "sheet"),
    **dict.fromkeys((".heic", ".heif", ".avif", ".jp2", ".j2k", ".bmp", ".gif", ".ppm", ".pgm"), "picture"),
    ".feather": "feather",
    ".avro": "avro",
    ".orc": "orc",
    ".dta": "stata",
    ".nii": "nifti",
    ".json": "json",
    ".jsonl": "lines",
}
_SAID = {
    "hdf5": "is HDF5, whose groups only its owner knows; with h5py: "
    "numpy.savez('mine.npz', records=h5py.File(path)['NAME'][:], labels=h5py.File(path)['LABELS'][:])",
    "netcdf": "is NetCDF, whose packed integers and missing values xarray decodes and h5py does not: "
    "numpy.save('mine.npy', xarray.load_dataset(path)['NAME'].values)",
    "sqlite": "is a database (SQLite), of which one table or query is meant: "
    "pandas.read_sql('select * from NAME', sqlite3.connect(path)).to_parquet('mine.parquet')",
    "dicom": "is DICOM, whose window, rescaling and spacing are its owner's choice; with pydicom: "
    "numpy.save('mine.npy', numpy.stack([pydicom.dcmread(file).pixel_array for file in files]))",
    "nifti": "is NIfTI, a volume whose slices and scale are its owner's choice; with nibabel: "
    "numpy.save('mine.npy', numpy.moveaxis(nibabel.load(path).get_fdata(), 2, 0))",
    "pickle": "is a pickle, which runs whatever code it holds when it is opened; where you trust it: "
    + _ARRAYS,
    "torch": f"is a file of torch, whose tensors only its owner knows; torch.load(path), then {_ARRAYS}",
    "sheet": "is a spreadsheet, of which one sheet is meant: pandas.read_excel(path).to_csv('mine.csv', index=False)",
    "picture": "is a picture in a format that is not read; with Pillow (for HEIC with pillow-heif): "
    "Image.open(path).convert('RGB').save('mine.png')",
    "feather": "is Arrow's file format (Feather): pandas.read_feather(path).to_parquet('mine.parquet')",
    "avro": "is Avro; with polars: polars.read_avro(path).write_parquet('mine.parquet'), or with fastavro: "
    "pandas.DataFrame(fastavro.reader(open(path, 'rb'))).to_parquet('mine.parquet')",
    "orc": "is ORC: pandas.read_orc(path).to_parquet('mine.parquet')",
    "stata": "is a table of Stata: pandas.read_stata(path).to_parquet('mine.parquet')",
    "json": "is JSON, e.g. of clients as in LEAF, whose fields only its owner knows: "
    "numpy.savez('mine.npz', records=[x for u in data['user_data'].values() for x in u['x']], "
    "labels=[y for u in data['user_data'].values() for y in u['y']])",
    "lines": "is JSON by lines: pandas.read_json(path, lines=True).to_parquet('mine.parquet')",
}


def conversion(path: Path) -> str | None:
    """Say what a file is and how to convert it. None for a file of another kind.

    Args:
        path: The file, by whose first bytes, or else by whose name, its kind is known.
    """
    head = b""
    with suppress(OSError):
        if path.is_file():  # a pipe would wait for its writer
            with path.open("rb") as file:
                head = file.read(_HEAD)
    name = path.name.lower().removesuffix(".gz")
    kind = next((kind for at, magic, kind in _BY_HEAD if head[at : at + len(magic)] == magic), None)
    by_suffix = _BY_SUFFIX.get(Path(name).suffix)
    if kind is None or (kind == "hdf5" and by_suffix == "netcdf"):  # NetCDF 4 is a kind of HDF5
        kind = by_suffix
    return None if kind is None else _SAID[kind]
