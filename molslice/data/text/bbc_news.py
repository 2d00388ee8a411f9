"""BBC News: 2,225 articles of five topics (Greene and Cunningham 2006)."""

from molslice.data.text.base import FolderTexts
from molslice.data.text.documents import Documents, Labeled, read_class_folders
from molslice.files.records import read_records

TABLE = "bbc-text.csv"


class BbcNews(FolderTexts):
    """Articles in the folder `root`: `bbc-text.csv` or one folder per topic.

    The table has the columns `category` and `text`. The folders are as in `bbc-fulltext.zip`: business,
    entertainment, politics, sport, tech. The source has no test split. The options are the same as for
    `TextDataset`.
    """

    target = "topic"
    class_names = ("business", "entertainment", "politics", "sport", "tech")
    instructions = "By hand: unpack bbc-fulltext.zip of http://mlg.ucd.ie/datasets/bbc.html"

    def read(self) -> Documents:
        """Read all articles."""
        path = self.root / TABLE
        if path.is_file():
            records = read_records(path, ("category", "text"))
            topics = [cell.strip() for cell in records.texts("category")]
            articles = Labeled(path, records.texts("text"), topics)
        elif all((self.root / name).is_dir() for name in self.class_names):
            articles = read_class_folders(self.root, self.class_names, pattern="*.txt")
        else:
            raise self.missing(f"{TABLE} nor the folders {', '.join(self.class_names)}")
        return Documents.of_classes({"train": articles}, self.target, self.class_names)
