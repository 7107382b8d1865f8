import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # toy.py, also for the ranks of tests/transports
