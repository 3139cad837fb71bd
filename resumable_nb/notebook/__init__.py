"""The IPython extension: `%%resumable`, where a cell stands, what it shows. Only this package speaks to IPython."""
