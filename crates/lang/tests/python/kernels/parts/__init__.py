from .scales import SCALE, scaled
