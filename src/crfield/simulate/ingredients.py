"""The vocabulary of the ingredient phrases.

Words are listed as often as they should be drawn. Ingredients come in groups that share what one does to
them and how one measures them, so that oil is poured and onions are chopped. Many words stand in several
lists on purpose (*cloves* is a unit and a name, *sticks* a unit, a name and a shape), and some are
modifiers in one cook's hand and preparations in another's (*fresh*, *roasted*): that is what makes a model
look at the neighbours, and what keeps any model from being perfect.
"""

from __future__ import annotations

from typing import NamedTuple


def _words(text: str) -> list[str]:
    return text.split()


def _runs(text: str) -> list[list[str]]:
    return [run.split() for run in text.split("|")]


class Group(NamedTuple):
    """Ingredients that are measured and prepared alike; the unit "-" stands for none."""

    units: list[str]
    modifiers: list[str]
    nouns: list[str]
    compounds: list[list[str]]  # names of two words
    prepared: list[str]
    solid: bool  # whether one cuts it


PRODUCE = Group(
    _words("- - - - cup cup pound lb g g head bunch stalk clove clove clove ear bag handful slice oz ounce can"),
    _words(
        "red red green yellow white baby sweet small large medium ripe fresh fresh frozen wild organic whole young"
    ),
    _words(
        "onions onions onions carrots potatoes tomatoes tomatoes peppers garlic garlic celery spinach "
        "kale cabbage broccoli mushrooms zucchini eggplants squash corn peas leeks shallots scallions "
        "ginger beets radishes cucumbers avocados apples apples pears lemons lemons limes oranges bananas "
        "strawberries blueberries mangoes peaches cherries grapes lettuce fennel asparagus cauliflower"
    ),
    _runs(
        "bell peppers|bell peppers|cherry tomatoes|plum tomatoes|snow peas|spring onions|"
        "butternut squash|romaine lettuce|button mushrooms|celery stalks|celery stalks|garlic cloves|"
        "garlic cloves|lemon slices|orange slices|sweet potatoes|bok choy|corn kernels|chili peppers|"
        "lettuce leaves"
    ),
    _words(
        "chopped chopped chopped sliced sliced diced diced minced minced grated shredded peeled peeled "
        "halved quartered cubed seeded cored trimmed crushed roasted mashed pitted julienned washed torn "
        "fresh ripe small large"
    ),
    solid=True,
)
SPICES = Group(
    _words("teaspoon teaspoon tsp tsp. tablespoon tbsp tbsp. Tbsp T t pinch dash sprig sprig leaf stick g - bunch"),
    _words(
        "fresh fresh dried dried ground ground smoked whole black white sweet hot kosher sea Italian Thai roasted"
    ),
    _words(
        "salt salt salt pepper pepper cumin oregano basil basil parsley parsley cilantro thyme rosemary "
        "cinnamon nutmeg cloves cloves cloves paprika turmeric coriander mint dill sage saffron cardamom "
        "cayenne allspice tarragon"
    ),
    _runs(
        "bay leaves|bay leaves|basil leaves|basil leaves|mint leaves|cinnamon sticks|cinnamon sticks|"
        "chili powder|curry powder|garlic powder|onion powder|mustard seeds|fennel seeds|cumin seeds|"
        "celery salt|lemon zest|vanilla beans|chili flakes|thyme sprigs|parsley sprigs"
    ),
    _words("chopped chopped minced crushed ground ground toasted torn crumbled fresh dried roasted grated cracked"),
    solid=False,
)
LIQUIDS = Group(
    _words(
        "cup cup cup tablespoon tbsp tbsp. T teaspoon tsp pint quart liter ml ml ml splash drizzle bottle "
        "can carton oz"
    ),
    _words("extra-virgin low-fat warm cold hot dry white red dark light heavy unsweetened skim rich plain toasted"),
    _words(
        "water water milk milk cream oil oil wine beer honey vinegar broth stock rum brandy yogurt buttermilk syrup"
    ),
    _runs(
        "olive oil|olive oil|olive oil|vegetable oil|sesame oil|peanut oil|coconut milk|coconut milk|"
        "almond milk|chicken stock|chicken stock|beef broth|vegetable stock|tomato sauce|soy sauce|"
        "soy sauce|fish sauce|lemon juice|lime juice|orange juice|maple syrup|cider vinegar|"
        "wine vinegar|vanilla extract"
    ),
    _words("warmed chilled boiled heated strained whipped cold hot warm toasted"),
    solid=False,
)
PANTRY = Group(
    _words(
        "cup cup cup tablespoon teaspoon tsp tbsp g g g kg oz ounce pound lb lbs stick package box bag can jar sheet"
    ),
    _words(
        "unsalted salted all-purpose granulated powdered brown white dark bittersweet long-grain instant "
        "active plain whole old-fashioned unsweetened light melted crushed dried roasted raw toasted "
        "grated"
    ),
    _words(
        "sugar sugar flour flour butter butter butter rice oats cocoa chocolate yeast cornstarch pasta "
        "noodles lentils beans chickpeas almonds walnuts pecans cashews raisins dates cheese breadcrumbs "
        "spaghetti quinoa couscous eggs"
    ),
    _runs(
        "baking soda|baking powder|baking powder|almond flour|rice flour|corn flour|bread flour|"
        "bread crumbs|cake crumbs|goat cheese|cream cheese|cheddar cheese|Parmesan cheese|pumpkin seeds|"
        "sunflower seeds|peanut butter|almond butter|black beans|pine nuts|rice noodles|"
        "chocolate pieces|butter sticks"
    ),
    _words(
        "melted melted softened sifted packed packed toasted chopped grated grated crushed crumbled cubed "
        "cooked roasted"
    ),
    solid=False,
)
MEATS = Group(
    _words("- - - - pound pound lb lb. lbs oz ounce g g kg slice slice strip piece fillet package can tin rack"),
    _words("boneless skinless lean ground ground smoked smoked fresh frozen wild whole raw cooked thick large jumbo"),
    _words(
        "bacon bacon ham beef beef pork chicken chicken turkey lamb salmon shrimp tuna cod sausages eggs steaks duck"
    ),
    _runs(
        "chicken breasts|chicken breasts|chicken thighs|chicken wings|pork chops|lamb chops|beef steaks|"
        "salmon fillets|salmon fillets|cod fillets|turkey breasts|tuna steaks|flank steaks|veal shanks|"
        "bacon strips|bacon slices|chicken pieces|pork sausages|beef stock"
    ),
    _words(
        "trimmed cubed cooked cooked shredded sliced thawed chopped smoked deveined peeled ground frozen crumbled"
    ),
    solid=True,
)
GROUPS = [PRODUCE, PRODUCE, PRODUCE, SPICES, SPICES, LIQUIDS, LIQUIDS, PANTRY, PANTRY, PANTRY, MEATS, MEATS]

METRIC = {"g", "ml"}
CONTAINERS = {"can", "tin", "jar", "package", "box", "bag", "bottle", "carton"}
PLURALS = {
    "leaf": "leaves",
    "pinch": "pinches",
    "dash": "dashes",
    "bunch": "bunches",
    "splash": "splashes",
    "box": "boxes",
    **{
        word: word + "s"
        for word in _words(
            "cup tablespoon teaspoon pound ounce pint quart liter head stalk clove ear bag slice handful "
            "sprig stick can drizzle bottle carton package jar sheet strip piece fillet tin rack lb"
        )
    },
}

STYLES = _words(
    "whole whole whole whole whole whole whole fraction fraction fraction mixed mixed mixed sign decimal "
    "hyphen hyphen to to word word"
)
FRACTIONS = _words("1/2 1/2 1/2 1/3 1/4 1/4 3/4 2/3 1/8")
SIGNS = _words("½ ¼ ¾ ⅓ 1½ 2½")
NUMBERS = _words("one two three four six half a a several")
SINGULAR = {"1", "one", "a", "half", *FRACTIONS, *SIGNS[:4]}

PAIRED = _runs(
    "cream of tartar|hearts of palm|leg of lamb|salt and pepper|salt and pepper|half and half|"
    "rack of lamb|macaroni and cheese|salt and black pepper|pork and beans"
)
ADVERBS = _words("finely finely coarsely freshly freshly thinly roughly lightly firmly loosely well")
SIZES = _words("large large medium small thin thick heaping generous scant")
SHAPES = _words("cubes pieces slices strips rounds wedges chunks dice matchsticks sticks")
TAILS = _runs(
    "to taste|to taste|at room temperature|optional|as needed|if desired|for serving|for garnish|divided|"
    "cut in half|or more to taste|plus more for serving|plus more for dusting|plus more to taste|"
    "plus a pinch for the pan|for frying|for the pan|white and green parts|stems removed|skin on|"
    "with their juice|leaves only|fresh or frozen|from the can|dried or fresh|"
    "plus 1 tablespoon for the pan|juice and zest|rinsed in cold water|room temperature"
)
LINKS = _runs("packed in|in|such as|or|or|plus 1|from 1|preferably|not|for the|with")
LEADS = _runs("about|approximately|up to|approx.|-|*|•|good|optional :|some|1.|[ ]")
STRAYS = _words("* . ** ! ; *note ]")

ONSETS = _words("b bl br ch d dr f g gr h k l m n p qu r s sh st t tr v z")
VOWELS = _words("a e i o u ai ee ou")
CODAS = ["", "", "l", "n", "r", "m", "s", "k"]
EXTRA = {
    "modifier": ["", "", "", "ed", "y"],
    "noun": ["", "", "s", "s"],
    "prepared": ["ed", "ed", "ed", "", "en"],
}
